"""Places in an engine's ``counts`` (4,)."""

FILLED, VERSION, MISTAKES, UPDATES = 0, 1, 2, 3  # events in the open block; comparisons; with f > 0; that updated
