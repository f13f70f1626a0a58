"""What operators do with topics, models, dead letters and logs."""
