"""Engines: what learners share. State as arrays, compiled walks over comparisons, learning that is all or nothing."""
