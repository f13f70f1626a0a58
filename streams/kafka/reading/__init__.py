"""A Kafka topic as a source of feedback: its consumer, batches, epochs and gaps."""
