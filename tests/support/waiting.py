"""Waiting for a condition."""

from __future__ import annotations

import time

from workers.node.node import RetrievalNode

PAUSE_S = 0.005


def wait_until_ready(node: RetrievalNode, timeout_s: float = 30.0) -> None:
    """Return when the node can answer for every model; fails if one is missing even then."""
    deadline = time.monotonic() + timeout_s
    while node.missing() and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
    assert not node.missing(), f"after {timeout_s} s there is no version of {node.missing()}"
