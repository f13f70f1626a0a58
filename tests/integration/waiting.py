"""Waiting for conditions instead of sleeping."""

import time
from collections.abc import Callable

from tests.support.processes import patient


def until(condition: Callable[[], object], limit_s: float = 30.0) -> None:
    """Return as soon as the condition holds; fail after ``limit_s``, or what that is side by side with other tests."""
    limit_s = patient(limit_s)
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"still waiting after {limit_s:g} s for {condition}")
        time.sleep(0.005)
