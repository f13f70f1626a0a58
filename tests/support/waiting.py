"""Waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omdml.workers.node.node import RetrievalNode

PAUSE_S = 0.005
# Asking whether something has come true takes a tenth of a processor at most, unless an answer would come so late then;
# and never more than a quarter: the rest is for those who are waited for, and for other tests.
LATE_S = 0.2


class Pauses:
    """Pauses between questions whether something has come true: the longer, the more of the processor each takes."""

    def __init__(self) -> None:
        self._asked = time.thread_time()

    def pause(self) -> None:
        """Sleep as long as the last question asks for."""
        spent = time.thread_time() - self._asked
        time.sleep(max(PAUSE_S, 3 * spent, min(9 * spent, LATE_S)))
        self._asked = time.thread_time()


def comes_true(condition: Callable[[], object], limit_s: float) -> bool:
    """Whether the condition holds within this time; returns as soon as it does."""
    deadline, pauses = time.monotonic() + limit_s, Pauses()
    while not condition():
        if time.monotonic() > deadline:
            return False
        pauses.pause()
    return True


def wait_until_ready(node: RetrievalNode, timeout_s: float = 30.0) -> None:
    """Return when the node can answer for every model; fails if one is missing even then."""
    assert comes_true(lambda: not node.missing(), timeout_s), (
        f"after {timeout_s} s there is no version of {node.missing()}"
    )
