"""Benchmarks. Each is seeded and prints a table; ratios are taken in one run."""
