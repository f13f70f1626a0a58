"""What is remembered of the code that the papers' tables are computed with."""

from __future__ import annotations

from benchmarks.papers import cache


def forget():
    """Drop what other checkouts' code left."""
    for known in (cache.plain, cache.core, cache.code):
        known.cache_clear()
