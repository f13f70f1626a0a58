"""Waiting for conditions instead of sleeping."""

from collections.abc import Callable

from tests.support.processes import patient
from tests.support.waiting import comes_true


def until(condition: Callable[[], object], limit_s: float = 30.0) -> None:
    """Return as soon as the condition holds; fail after ``limit_s``, or what that is side by side with other tests."""
    limit_s = patient(limit_s)
    assert comes_true(condition, limit_s), f"still waiting after {limit_s:g} s for {condition}"
