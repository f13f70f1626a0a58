"""A fault that alerts are for, and what Prometheus must have seen once it is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tests.fault.alerts.service import WatchedService

PREFIX = "Omdml"
# A machine that starves makes clicks and searches slow as well, whatever else is broken.
OF_A_SLOW_MACHINE = frozenset({"FreshnessSlow", "SearchSlow"})


class Fault(NamedTuple):
    """Something that breaks, and is repaired.

    Parameters
    ----------
    title
        What happens, in words.
    run
        Breaks it, waits until its alerts fire, and repairs it as the runbook says.
    alerts
        What must fire; nothing else may.
    tolerated
        Except these, which may.
    """

    title: str
    run: Callable[[WatchedService], None]
    alerts: frozenset[str]
    tolerated: frozenset[str]

    @property
    def name(self) -> str:
        return self.run.__name__


def fault(
    title: str, *alerts: str, tolerated: Iterable[str] = ()
) -> Callable[[Callable[[WatchedService], None]], Fault]:
    """Make a fault of a function; names of alerts are without their prefix."""
    return lambda run: Fault(title, run, frozenset(alerts), OF_A_SLOW_MACHINE.union(tolerated))


def trial(fault: Fault, service: WatchedService) -> None:
    """Make a fault and remove it. Fails unless its alerts fired, and no others that a slow machine does not cause."""
    service.silent()
    began = time.time()
    fault.run(service)
    service.silent()
    fired = {alert.removeprefix(PREFIX) for alert in service.prometheus.fired_since(began)}
    fired -= fault.tolerated - fault.alerts
    assert fired == fault.alerts, f"{fault.title}: {sorted(fired)} fired, expected {sorted(fault.alerts)}"
