"""Engines hold the state of learners as arrays, and learn comparisons in compiled walks, all of them or none."""
