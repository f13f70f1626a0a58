"""Programs that send events to Kafka, one for each Kafka client, to copy from."""
