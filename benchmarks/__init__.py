"""Benchmarks. Each has a fixed seed and prints a table. What a ratio compares was measured in the same run."""
