"""A fault that alerts are for, and what Prometheus must have seen once it is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from tests.fault.alerts.service import WatchedService

PREFIX = "Omdml"
# A machine that starves makes clicks and searches slow as well, whatever else is broken. In the time of these tests
# Prometheus waits only three quarters of a second for a page, a twentieth of what is usual. A process that takes longer
# counts as down.
OF_A_SLOW_MACHINE = frozenset({"FreshnessSlow", "SearchSlow", "NobodyLearns", "NobodyAnswers"})


class Fault(NamedTuple):
    """Something that breaks, and is repaired.

    Parameters
    ----------
    title
        What happens, in words.
    run
        Breaks it, waits until its alerts fire, and repairs it as the runbook says.
    alerts
        What must fire. Nothing else may, except what a slow machine causes.
    """

    title: str
    run: Callable[[WatchedService], None]
    alerts: frozenset[str]

    @property
    def name(self) -> str:
        return self.run.__name__


def fault(title: str, *alerts: str) -> Callable[[Callable[[WatchedService], None]], Fault]:
    """Make a fault of a function; names of alerts are without their prefix."""
    return lambda run: Fault(title, run, frozenset(alerts))


def trial(fault: Fault, service: WatchedService) -> None:
    """Make a fault and remove it. Fails unless its alerts fired, and no others that a slow machine does not cause."""
    service.silent()
    began = time.time()
    fault.run(service)
    service.silent()
    fired = {alert.removeprefix(PREFIX) for alert in service.prometheus.fired_since(began)}
    fired -= OF_A_SLOW_MACHINE - fault.alerts
    assert fired == fault.alerts, f"{fault.title}: {sorted(fired)} fired, expected {sorted(fault.alerts)}"
