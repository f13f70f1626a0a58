"""Fetches Kafka, Redis, Valkey and Java into the cache folder, without installing anything."""
