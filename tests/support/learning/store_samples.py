"""Checkpoints, snapshots and stores that hold some, for the tests of stores."""

from collections.abc import Callable
from typing import Any

import numpy as np

from omdml.metrics import ProjectionMetric
from omdml.snapshot import Checkpoint, Snapshot
from omdml.streams.protocols.store import Pointer, Store, Written

HOME = ("topic-id", 3)
ODD_NAMES = ["..", ".hidden", "a/b", "a}b{c", "50% off: großes Sofa", "con\n"]
Damage = Callable[[], None]
# Takes a copy of what there is of "shop", and answers how to put that in its place again.
Copy = Callable[[], Callable[[], None]]


def checkpoint(offset: int = 0, *, model: str = "shop", home: tuple[str, int] = HOME, state: bytes = b"") -> Checkpoint:
    return Checkpoint(
        model=model,
        home=home,
        next=offset,
        version=offset,
        generation="g1",
        configuration="c1",
        platform="p1",
        event_time=1790000000.25,
        progress={"events": offset},
        state=state or b"state %d" % offset,
    )


def snapshot(version: int, *, model: str = "shop", seed: int | None = None) -> Snapshot:
    matrix = np.random.default_rng(version if seed is None else seed).normal(size=(2, 3))
    return Snapshot(
        model=model,
        learner="lomdml",
        version=version,
        generation="g1",
        event_time=None,
        oldest_event_time=None,
        progress={},
        metric=ProjectionMetric({"color": 1.0}, {"color": matrix}),
    )


def published(store: Store, *versions: int, model: str = "shop") -> str:
    """Publish these snapshots; returns the epoch of their owner."""
    epoch = store.claim(model).epoch
    for version in versions:
        assert store.publish(snapshot(version, model=model), epoch) is Written.STORED
    return epoch


def live(store: Store, model: str = "shop") -> Pointer:
    pointer = store.current(model)
    assert pointer
    return pointer


def history_fields(store: Store, *names: str) -> list[tuple[Any, ...]]:
    """The values of these fields in every line of the history."""
    return [tuple(line[name] for name in names) for line in store.history("shop")]
