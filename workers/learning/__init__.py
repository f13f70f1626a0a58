"""The worker: partitions of a log, learned exactly once."""
