"""Brokers and stores that go away, or forget."""
