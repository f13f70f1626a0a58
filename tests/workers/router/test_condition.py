"""What a router's probes and systemd are told of it."""

from __future__ import annotations

import time
from types import SimpleNamespace

from omdml.workers.router import condition


def router(**facts):
    healthy = {"turned_at": time.monotonic(), "connected": True, "stopping": False}
    return SimpleNamespace(**{**healthy, **facts})


def condition_of(router):
    return condition.condition(router, "feedback")


def test_a_router_is_ready_while_it_has_a_producer_and_was_not_told_to_end():
    assert condition_of(router(turned_at=None))[:4] == (False, True, False, False)
    assert condition_of(router()) == (True, True, True, False, "routing into feedback")
    assert condition_of(router(connected=False))[:4] == (True, True, False, False)
    assert condition_of(router(stopping=True))[:4] == (True, True, False, True)


def test_a_router_whose_loop_does_not_turn_is_not_alive():
    stuck = condition_of(router(turned_at=time.monotonic() - condition.STUCK_AFTER_S - 1))
    assert stuck[:4] == (True, False, False, False)
    assert "restart this router" in stuck.status
