"""Fetches Kafka, Redis, Java and other programs into the cache folder, without installing anything."""
