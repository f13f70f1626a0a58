"""What a configuration must be beyond its types: ranges, texts, models, parents."""
