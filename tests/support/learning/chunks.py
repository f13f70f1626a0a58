"""Learns the same events in calls of any size."""

from __future__ import annotations


def in_chunks(model, rows, features, sizes):
    """Learn in calls of these many events; a size of 0 means learn_one."""
    first = 0
    while first < len(rows):
        size = next(sizes)
        if size == 0:
            model.learn_one(rows[first], features)
        else:
            model.learn_many(rows[first : first + size], features)
        first += max(1, size)
    return model
