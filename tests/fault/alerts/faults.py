"""The faults, in the order in which they are made."""

from __future__ import annotations

from tests.fault.alerts.fault import Fault, fault
from tests.fault.alerts.rival import Rival, Unkeyed


@fault("the only worker is killed, and started again", "TargetDown", "NobodyLearns")
def worker_killed(service):
    service.worker.kill()
    service.fires("TargetDown", "NobodyLearns")
    service.start("worker")
    service.learns()


@fault("the only router is killed, and started again", "NobodyRoutes", "TargetDown")
def router_killed(service):
    service.processes["route"].kill()
    service.fires("NobodyRoutes", "TargetDown")
    service.start("route")


@fault("another process ends the router's transactions, again and again", "RouteRepeats")
def router_has_a_rival(service):
    unkeyed, rival = Unkeyed(service.unkeyed), Rival(service)
    try:
        service.fires("RouteRepeats")
    finally:
        rival.end()
        unkeyed.end()


FAULTS: dict[str, Fault] = {each.name: each for each in (worker_killed, router_killed, router_has_a_rival)}
