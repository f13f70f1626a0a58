"""When the rows that score triplets are made again (MATHS 12 (p))."""

from __future__ import annotations


def next_refresh(version: int) -> int:
    """The version of the refresh that follows one at ``version``: after a fifth more triplets, at least one."""
    return version + max(1, -(-version // 5))
