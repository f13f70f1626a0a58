"""When the thread that follows the store counts as stuck."""

from __future__ import annotations

import math
import threading
import time

from omdml.workers.node.following import follow
from tests.support.waiting import until


def test_a_thread_that_waits_is_stuck_and_one_that_computes_is_not(shop, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def hang(model):
        begun.set()
        go_on.wait(60)

    with shop.serving() as node:
        monkeypatch.setattr(node._refresher, "refresh", hang)
        assert begun.wait(10)
        assert node.alive
        monkeypatch.setattr(follow, "STUCK_AFTER_S", 0.2)
        until(lambda: not node.alive)
        # If the thread took processor time all the while, as for a very large gallery, I expect the node to be alive.
        monkeypatch.setattr(time, "clock_gettime", lambda clock: math.inf)
        assert node.alive
        go_on.set()
