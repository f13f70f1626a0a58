"""Waits for conditions instead of sleeping."""

from collections.abc import Callable

from tests.support.processes import patient
from tests.support.waiting import comes_true


def until(condition: Callable[[], object], limit_s: float = 30.0) -> None:
    """Wait until the condition holds; fail after ``limit_s``, or longer if other tests run in parallel."""
    limit_s = patient(limit_s)
    assert comes_true(condition, limit_s), f"still waiting after {limit_s:g} s for {condition}"
