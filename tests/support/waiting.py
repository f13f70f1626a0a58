"""Waits until a condition holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omdml.workers.node.node import RetrievalNode

PAUSE_S = 0.005


def comes_true(condition: Callable[[], object], limit_s: float) -> bool:
    """Whether the condition holds within this time; returns as soon as it does."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_S)
    return True


def wait_until_ready(node: RetrievalNode, timeout_s: float = 30.0) -> None:
    """Wait until the node can answer for every model; fails if one is still missing at the end."""
    assert comes_true(lambda: not node.missing(), timeout_s), (
        f"after {timeout_s} s there is no version of {node.missing()}"
    )
