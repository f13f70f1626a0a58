"""Tests wait until a condition holds, not for a fixed time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.support.processes import patient

if TYPE_CHECKING:
    from omdml.workers.node.node import RetrievalNode

PAUSE_S = 0.005


def comes_true(condition: Callable[[], object], limit_s: float) -> bool:
    """Whether the condition holds within this time; returns as soon as it does."""
    deadline = time.monotonic() + limit_s
    asked = processor_time()
    while not condition():
        if time.monotonic() > deadline:
            return False
        # Asking takes at most a quarter of a processor: the rest is for those who are waited for, and for other tests.
        time.sleep(max(PAUSE_S, 3 * (processor_time() - asked)))
        asked = processor_time()
    return True


def until(condition: Callable[[], object], limit_s: float = 30.0) -> None:
    """Wait until the condition holds; fail after ``limit_s``, or longer if other tests run in parallel."""
    limit_s = patient(limit_s)
    assert comes_true(condition, limit_s), f"still waiting after {limit_s:g} s for {condition}"


def processor_time() -> float:
    """Seconds that this thread has taken of a processor, and the processes that this one started and that ended."""
    times = os.times()
    return time.thread_time() + times.children_user + times.children_system


def wait_until_ready(node: RetrievalNode, timeout_s: float = 30.0) -> None:
    """Wait until the node can answer for every model; fails if one is still missing at the end."""
    assert comes_true(lambda: not node.readiness.missing(), timeout_s), (
        f"after {timeout_s} s there is no version of {node.readiness.missing()}"
    )
