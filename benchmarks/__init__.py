"""Measurements: seeded, each a table with ratios taken in one run."""
