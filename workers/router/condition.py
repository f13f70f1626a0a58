"""The condition of a router, for its probes and for systemd."""

from __future__ import annotations

import time
from typing import Protocol

from omdml.workers.telemetry.condition import STARTING, Condition

# Seconds without a turn of the loop. The steps of a transaction together are given up sooner than this.
STUCK_AFTER_S = 60.0


class Routing(Protocol):
    """The facts about a router that its condition is made from."""

    turned_at: float | None

    @property
    def connected(self) -> bool:
        """Whether the cluster answers, and the router has a producer, so that it can route events."""

    @property
    def stopping(self) -> bool:
        """Whether the router has been asked to stop."""


def condition(router: Routing, topic: str) -> Condition:
    """The condition of a router into a topic. Any thread may call this."""
    if router.turned_at is None:
        return STARTING
    idle = time.monotonic() - router.turned_at
    alive = idle < STUCK_AFTER_S
    if not alive:
        status = f"stuck: the loop has not turned for {idle:.0f} s, restart this router"
    elif router.stopping:
        status = "draining: the last records are being routed"
    elif not router.connected:
        status = "waiting for Kafka: nothing is routed, nothing is lost"
    else:
        status = f"routing into {topic}"
    ready = alive and router.connected and not router.stopping
    return Condition(started=True, alive=alive, ready=ready, stopping=router.stopping, status=status)
