"""What is remembered of the code that the papers' tables are computed with."""

from __future__ import annotations

from benchmarks.papers import cache


def forget():
    """Drop what other checkouts' code left."""
    for cached in (cache.plain, cache.core, cache.code):
        cached.cache_clear()
