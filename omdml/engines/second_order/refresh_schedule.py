"""When the rows that score triplets are made again (MATHS 12 (p))."""

from __future__ import annotations

# Up to so many triplets each refresh searches all directions, because directions still change much between refreshes.
ALL = 4_096


def next_refresh(version: int) -> int:
    """The version of the refresh that follows one at ``version``: after a fifth more triplets, at least one."""
    return version + max(1, -(-version // 5))


def searches_all(made: int, version: int) -> bool:
    """Whether a refresh at ``version``, after one at ``made``, searches all directions, or only near the last rows.

    It searches all of them up to ``ALL`` triplets, and then once for each power of two.
    """
    return version <= ALL or version.bit_length() > made.bit_length()
