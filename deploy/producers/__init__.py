"""Programs that send events to Kafka, one a client: to copy from."""
