"""What became of every event: the oracle's sums, and each model learned again in the order of the log."""

from __future__ import annotations

import time
from typing import NamedTuple

from omdml import DCA
from omdml.batch.sums import emptied
from tests.fault.chaos.service import HOT, LIMIT_S, RANK, Service
from tests.fault.twin import learned_bytes
from tests.support.learning.parts import alone, same_sums, summed_in_order
from tests.support.oracle import Finding, Oracle

LOOK_EVERY_S = 0.5


class Verdict(NamedTuple):
    """Events that were acknowledged, that are dead letters, that have no fate, and that have more than one."""

    events: int
    letters: int
    lost: int
    doubled: int


def judge(service: Service) -> Verdict:
    """End the load, let everything be taken, and compare what was learned with what the log says.

    Raises AssertionError if something else than counts does not add up; if a model that took as many events as it
    should is not, byte for byte, what they make of a learner that learns them one after the other; if a worker does not
    end as it should; if the node does not come to serve what was learned last.
    """
    sent = service.load.end()
    acknowledged = [str(number).encode() for number in range(sent) if number not in service.load.given_up]
    oracle, results = settled(service, acknowledged)
    for worker in service.workers:
        assert (code := worker.stop()) == 0, f"{worker.output.name} ended with {code}: {worker.said[-2000:]}"
    service.serves(service.live())
    lost, doubled = (sum(entry.events for entry in results if entry.what == what) for what in ("lost", "doubled"))
    for result in results:
        print(result.text)
    assert not (others := [entry.text for entry in results if entry.what not in ("lost", "doubled")]), others
    assert not oracle.unread, f"{len(oracle.unread)} events lie in partitions that nobody reads"
    hot = DCA.from_bytes(service.store.peek(HOT).state)
    parts = (alone(emptied(hot), oracle.learned(name), service.items.features, HOT) for name in oracle.parts_of(HOT))
    assert same_sums(hot, summed_in_order(parts)) or lost or doubled, f"{HOT} is not the sum of what its parts learned"
    for model in service.learner.keys() & oracle.taken:
        learned = learned_bytes(oracle.learned(model), service.items, RANK, service.learner[model])
        same = service.store.peek(model).state == learned
        assert same or lost or doubled, f"{model} is not what a replay of its {len(oracle.learned(model))} events gives"
    return Verdict(len(acknowledged), len(oracle.letters), lost, doubled)


def settled(service: Service, numbers: list[bytes]) -> tuple[Oracle, list[Finding]]:
    """The findings once every event was routed and taken, or once time is up."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        oracle = service.oracle()
        result = oracle.findings(service.checkpoints(), service.letters(), numbers)
        if not result or time.monotonic() > deadline:
            return oracle, result
        service.wait(lambda: True, "events to be taken")
        # Each look reads the whole log, beside the workers that it waits for.
        time.sleep(LOOK_EVERY_S)
