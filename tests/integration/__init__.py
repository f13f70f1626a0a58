"""Tests that talk to real Kafka, Redis and Valkey."""
