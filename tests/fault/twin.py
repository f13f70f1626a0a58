"""What a learner makes of the events that an oracle says are learned: the bytes that a worker must end with."""

from __future__ import annotations

import json
from collections.abc import Iterable

from omdml.learners import LEARNERS
from omdml.streams.protocols.catalogue import Catalogue
from tests.support.records import Event


def learned_bytes(events: Iterable[Event], items: Catalogue, rank: int, name: str = "lomdml") -> bytes:
    """The state of the learner of this name that takes these triplets one after the other."""
    payloads = [json.loads(event.value) for event in events]
    ids = [payload[name] for payload in payloads for name in ("query", "relevant", "irrelevant")]
    kind = LEARNERS[name]
    items = items.in_coordinates(kind.coordinates)
    options = kind.on_mapped if kind.coordinates == "mapped" else {}
    learner = kind(dims=dict(items.dims), rank=rank, **options)
    learner.start(items.features)
    learner.learn_many(items.rows(ids).reshape(-1, 3), items.features)
    return learner.to_bytes()
