"""What became of every event: counted, and learned again in the order of the log."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from omdml import LOMDML
from omdml.feedback import decode
from streams.protocols import Record
from tests.fault.chaos.service import MODELS, NODE, RANK, Service
from tests.worlds import is_held_out
from workers import config, wiring
from workers.replay import read_whole


class Verdict(NamedTuple):
    """Events that were sent, that were not learned, and that were learned more than once."""

    events: int
    lost: int
    doubled: int


class Told(NamedTuple):
    """What the log holds of one model: its triplets, in order, and the offset after the last."""

    triplets: list[list[str]]
    end: int
    held_out: list[bool]  # whether it is never learned


def judge(service: Service) -> Verdict:
    """End the load, let everything be taken, and compare what was learned with what the log says.

    Raises AssertionError where a model that took as many events as it should is not, byte for byte, what they make of
    a learner that learns them one after the other; where a worker does not end as it should; where the node does not
    come to serve what was learned last.
    """
    sent = service.load.end()
    told, found = read(service)
    service.wait(
        lambda: positions(service) == {model: log.end for model, log in told.items()}, "all events to be taken"
    )
    for worker in service.workers:
        assert (code := worker.stop()) == 0, f"{worker.output.name} ended with {code}: {worker.said[-2000:]}"
    service.serves(service.live())
    lost = sum(number not in found for number in range(sent))
    doubled = sum(count - 1 for count in found.values())
    for model, log in told.items():
        kept = service.store.peek(model)
        assert kept is not None
        taken, expected = kept.progress["mistakes"]["count"] + kept.progress["hold_out"]["count"], len(log.triplets)
        lost, doubled = lost + max(0, expected - taken), doubled + max(0, taken - expected)
        same = kept.state == replayed(service, log)
        assert same or taken != expected, f"{model} is not what a replay of its {taken} events gives"
    return Verdict(sent, lost, doubled)


def positions(service: Service) -> dict[str, int]:
    """The offset after the last event that each model's checkpoint knows of."""
    return {model: position.next for model, position in service.store.positions(MODELS).items()}


def read(service: Service) -> tuple[dict[str, Told], Counter[int]]:
    """What the log holds of every model, and how often each event's number is in it."""
    log = config.load(str(service.configuration(NODE)), {}, {}).log
    told, found = {model: Told([], 0, []) for model in MODELS}, Counter[int]()
    secret = service.store.secret()
    for records in read_whole(wiring.open_bystander(log)):
        for record in records:
            event = decode(record.value)
            told[event.model].triplets.append([event.query, event.relevant, event.irrelevant])
            partition, offset = record.partition.number, record.offset
            told[event.model].held_out.append(is_held_out(secret, event.model, partition, offset))
            told[event.model] = told[event.model]._replace(end=record.offset + 1)
            found[number(record)] += 1
    return told, found


def number(record: Record) -> int:
    """The number that an event was sent with."""
    return int(bytes(dict(record.headers)["number"]))


def replayed(service: Service, log: Told) -> bytes:
    """The state of a learner that learned these, but for those that are held out."""
    rows = service.items.rows([item for triplet in log.triplets for item in triplet])
    learner = LOMDML(dims=dict(service.items.dims), rank=RANK)
    learner.learn_many(np.reshape(rows, (-1, 3))[~np.array(log.held_out, bool)], service.items.features)
    return learner.to_bytes()
