"""The faults, in the order in which they are made."""

from __future__ import annotations

from tests.fault.alerts.fault import Fault, fault
from tests.fault.alerts.rival import Rival, Unkeyed
from tests.fault.alerts.starved import StarvedProcess, flood
from tests.fault.alerts.watched import Searcher, UnknownModelSender
from tests.support.servers.prometheus import FASTER

SEARCHERS = 4


@fault("the only worker is killed, and started again", "TargetDown", "NobodyLearns")
def worker_killed(service):
    service.worker.kill()
    service.fires("TargetDown", "NobodyLearns")
    service.start("worker")
    service.learns()


@fault("the only node is killed, and started again", "TargetDown", "NobodyAnswers")
def node_killed(service):
    service.processes["node"].kill()
    service.fires("TargetDown", "NobodyAnswers")
    service.start("node")
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


@fault("a sender names a model that there is not", "FeedbackRefused")
def sender_is_mistaken(service):
    sender = UnknownModelSender(service.ports["node"], pause_s=0.2)
    try:
        service.fires("FeedbackRefused")
    finally:
        sender.end()


# In the time of these tests Prometheus waits only three quarters of a second for a page, a twentieth of what is usual.
# On a busy machine a starved worker takes longer. It then counts as down, so that NobodyLearns may fire, too.
@fault("the worker gets too little processor for the clicks that come", "LagHigh", tolerated=["NobodyLearns"])
def worker_starved(service):
    starved = StarvedProcess(service.worker)
    try:
        # The rule waits until the lag is half a minute, and then for five minutes, in its time. The rest is to spare.
        flood(service.kafka.servers, service.topic, seconds=440 / FASTER)
        service.fires("LagHigh")
    finally:
        starved.end()
    service.learns()


@fault("the node gets too little processor for its searches", "SearchSlow")
def node_starved(service):
    # A pause slows only the searches that the node has begun, so the searchers keep one under way at any time. Between
    # the pauses, the node has enough time to answer Prometheus, too.
    starved = StarvedProcess(service.processes["node"], paused_s=0.3, uses_s=0.03)
    searchers = [Searcher(service.ports["node"], pause_s=0.002) for _ in range(SEARCHERS)]
    try:
        service.fires("SearchSlow")
    finally:
        for searcher in searchers:
            searcher.end()
        starved.end()


FAULTS: dict[str, Fault] = {
    each.name: each
    for each in (
        worker_killed,
        node_killed,
        router_killed,
        router_has_a_rival,
        sender_is_mistaken,
        worker_starved,
        node_starved,
    )
}
