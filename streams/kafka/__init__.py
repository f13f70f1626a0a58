"""A feedback log in Kafka."""
