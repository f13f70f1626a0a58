"""What operators do to topics, models and dead letters, and to a log once more."""
