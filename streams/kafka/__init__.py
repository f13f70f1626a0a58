"""A feedback log in Kafka: topics, reading, sending, routing."""
