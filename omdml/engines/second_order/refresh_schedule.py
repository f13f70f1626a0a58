"""When the rows that score triplets are made again (MATHS 12 (p))."""

from __future__ import annotations

# Up to this version each refresh searches all directions, because they still change much between two refreshes.
SEARCH_ALL_UP_TO = 4_096


def next_refresh(version: int) -> int:
    """The version of the refresh that follows one at ``version``: after a fifth more triplets, at least one."""
    return version + max(1, -(-version // 5))


def searches_all(last: int, version: int) -> bool:
    """Whether a refresh at ``version``, after one at version ``last``, searches all directions.

    Otherwise it searches only near the last rows. All directions are searched up to version 4,096. After that only the
    first refresh at or after each power of two searches them all.
    """
    return version <= SEARCH_ALL_UP_TO or version.bit_length() > last.bit_length()
