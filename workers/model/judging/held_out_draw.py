"""Which of a model's events are held out, that is, never learned: new versions are judged by them before they go live.

An event is held out if a keyed hash of its model and its position says so. So it does not matter how events were
batched, or how often they were read; a replay holds out the same ones; and whoever sends events, but does not know the
store's secret, cannot tell which of them will be learned and which will judge.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec
import numpy as np

from omdml.feedback import AnyFeedback, Pair, SetJudgement
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.log import Record
from omdml.workers.events.lookup import Located, elements
from omdml.workers.model.judging.held_out_window import JudgingEvent, chosen

# The number of the partition, then the offset.
POSITION = struct.Struct(">IQ")


class Draw:
    """Says which events of a model are held out.

    Parameters
    ----------
    secret
        The store's. None if nothing is going to be learned.
    """

    def __init__(self, secret: bytes | None, model: str) -> None:
        self._start = None if secret is None else hashlib.blake2b(model.encode(), key=secret, digest_size=8)
        self.fingerprint = "" if secret is None else fingerprint(secret)

    def held_out(self, records: Iterable[Record], every: int) -> list[int]:
        """The indices of the records for which ``blake2b(secret, model, partition, offset) mod every`` is 0."""
        assert self._start is not None, "nothing can be held out without the store's secret"
        copy, position, digests = self._start.copy, POSITION.pack, []
        for record in records:
            state = copy()
            state.update(position(record.partition.number, record.offset))
            digests.append(state.digest())
        numbers = np.frombuffer(b"".join(digests), ">u8")
        return np.flatnonzero(numbers % every == 0).tolist()


def fingerprint(secret: bytes) -> str:
    """Shows whether two secrets are the same, and nothing else about them."""
    return hashlib.blake2b(b"which secret this is", key=secret, digest_size=8).hexdigest()


class HoldOutState(msgspec.Struct):
    """What a checkpoint says about holding out: how many events were held out so far, and those that judge.

    Parameters
    ----------
    every
        About one event of this many is held out; 0: none.
    count
        Events held out so far, whether or not ``kept`` still has them.
    secret
        The fingerprint of the secret that they were drawn with.
    kept
        The ones that judge, oldest first (:class:`omdml.workers.model.judging.held_out_window.Window`).
    """

    every: int = 0
    count: int = 0
    secret: str = ""
    kept: list[JudgingEvent] = []


class HeldOutOfBatch(NamedTuple):
    """One event of a batch that was held out, and where its turn comes among those that are learned.

    Parameters
    ----------
    before
        How many events of the batch are learned before it.
    event
        What is kept of it to judge by; None if it cannot judge.
    """

    before: int
    event: JudgingEvent | None


class Split(NamedTuple):
    """A batch, parted into what is to be learned and what was held out."""

    to_learn: Located
    held_out: list[HeldOutOfBatch]
    offsets: frozenset[int]


def split(located: Located, draw: Draw, every: int, catalogue: Catalogue, tasks: Collection[str]) -> Split:
    """Hold out the events that the draw chooses.

    Parameters
    ----------
    tasks
        Those of the learner. A pair of another task is left to it: it becomes a dead letter.
    """
    batch = located.events
    drawn = draw.held_out(batch.records, every)
    due = [index for index in drawn if getattr(batch.events[index], "task", None) in (None, *tasks)]
    if not due:
        return Split(located, [], frozenset())
    starts = list(accumulate(batch.id_counts, initial=0))
    held = []
    for count, index in enumerate(due):
        ids = batch.ids[starts[index] : starts[index + 1]]
        judging = judging_event(batch.events[index], ids, located.count(index), catalogue)
        held.append(HeldOutOfBatch(index - count, judging))
    return Split(located.without(due), held, frozenset(batch.records[index].offset for index in due))


def judging_event(
    event: AnyFeedback, ids: Sequence[str], comparisons: int, catalogue: Catalogue
) -> JudgingEvent | None:
    """An event of so many comparisons, which name these ids, as it is kept: its items by their rows in the catalogue.

    None if it brings vectors of its own: they would have to lie in every checkpoint.
    """
    if event.features is not None:
        return None
    if isinstance(event, SetJudgement):
        sets = [list(event.query), *(elements(event, name, catalogue) for name in (*event.relevant, *event.irrelevant))]
        return JudgingEvent([catalogue.rows(members).tolist() for members in sets], len(event.relevant))
    if isinstance(event, Pair):
        # A learner of triplets has a third item for it, which says nothing.
        return JudgingEvent([catalogue.rows([event.left, event.right]).tolist()], 0, event.similar, event.task)
    return JudgingEvent(chosen(catalogue.rows(ids).reshape(comparisons, -1)).tolist())
