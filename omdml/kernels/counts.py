"""Places in an engine's ``counts`` (4,)."""

# Events in the open block; comparisons; comparisons with f > 0; comparisons that changed the model.
FILLED, VERSION, MISTAKES, UPDATES = 0, 1, 2, 3
