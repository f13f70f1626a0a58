"""An oracle: what must have become of every event, and whether it has. It shares no code with the product.

Everything follows from the log and the placement: an event that came by its model's partition is learned or held out,
every other one is a dead letter. Events of a model in parts may come by any partition, whose part learns them. Findings
hold this against the numbers that events were sent with, checkpoints and letters, and name positions.

Tests give each event a header ``number``, and a header ``bad`` if it cannot be learned, whichever partition it comes
by. Events have one comparison each, so that a checkpoint's ``version`` counts events.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from tests.support.records import Event, Place, read_checkpoint, read_letters

WORD = 0xFFFFFFFF
STRAY = "wrong_partition"


@lru_cache
def murmur2(key: bytes) -> int:
    """The hash by which Kafka's own clients choose a partition, without its sign bit."""
    hashed, tail = 0x9747B28C ^ len(key), len(key) // 4 * 4
    for start in range(0, tail, 4):
        part = int.from_bytes(key[start : start + 4], "little") * 0x5BD1E995 & WORD
        part = (part ^ part >> 24) * 0x5BD1E995 & WORD
        hashed = hashed * 0x5BD1E995 & WORD ^ part
    if key[tail:]:
        hashed = (hashed ^ int.from_bytes(key[tail:], "little")) * 0x5BD1E995 & WORD
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & WORD
    return (hashed ^ hashed >> 15) & 0x7FFFFFFF


# Unless it is configured otherwise, librdkafka chooses the partition of a keyed message by crc32.
HASHES: dict[str, Callable[[bytes], int]] = {"murmur2": murmur2, "crc32": zlib.crc32}

# Between the name of a model in parts and the number of the partition that a part learns.
PART = "::part-"


class Step(NamedTuple):
    """A number of partitions, and for each partition the offset from which it holds (0 if absent)."""

    partitions: int
    since: Mapping[int, int] = {}


class Placement(NamedTuple):
    """Which partition each model lives on, at any position of the log."""

    partitioner: str
    steps: Sequence[Step]

    @classmethod
    def read(cls, data: bytes) -> Placement:
        """The placement in the JSON that the store keeps."""
        state = json.loads(data)
        steps = [
            Step(step["count"], {int(place): since for place, since in step["since"].items()})
            for step in state["steps"]
        ]
        return cls(state["partitioner"], steps)

    def step(self, partition: int, offset: int) -> int:
        """The number of the step that holds at a position; -1 if the position is not read yet."""
        if partition >= self.steps[-1].partitions:
            return -1
        return max(number for number, step in enumerate(self.steps) if step.since.get(partition, 0) <= offset)

    def home(self, model: str, step: int = -1) -> int:
        """The home partition of a model, or the partition that a part learns."""
        if PART in model:
            return int(model.rpartition(PART)[2])
        return HASHES[self.partitioner](model.encode()) % self.steps[step].partitions


# One of 50 events is held out, unless a test configures another number.
GUARD_EVERY = 50


def drawn(secret: bytes, every: int) -> Callable[[str, Event], bool]:
    """A function that says whether an event is held out: by a hash of model and place under the store's secret."""

    def held_out(model: str, event: Event) -> bool:
        hashed = blake2b(model.encode(), key=secret, digest_size=8)
        hashed.update(event.partition.to_bytes(4, "big") + event.offset.to_bytes(8, "big"))
        return int.from_bytes(hashed.digest(), "big") % every == 0

    return held_out


class Finding(NamedTuple):
    """Something that does not add up: a word for it, a number of events, and a sentence that names positions."""

    what: str
    events: int
    text: str


class Oracle:
    """Says what must have become of every event of a log.

    Parameters
    ----------
    held_out
        Says whether a model's event is held out (:func:`drawn`).
    in_parts
        Models in parts. Each part is judged as a model of its own.

    Attributes
    ----------
    taken
        By model or part the events that are learned or held out, in the order in which they are taken.
    letters
        By place the reason of each dead letter; ``bad`` for those that the test made so.
    unread
        Events in partitions that are not read yet.
    """

    def __init__(
        self,
        log: Iterable[Event],
        placement: Placement,
        held_out: Callable[[str, Event], bool] = lambda *_: False,
        in_parts: Collection[str] = (),
    ) -> None:
        self.placement, self.held_out, self.in_parts = placement, held_out, in_parts
        # A model goes on in its new partition only when everything in the old one is learned.
        self.log = sorted(log, key=lambda event: (placement.step(*event.place), event.place))
        self.taken: dict[str, list[Event]] = defaultdict(list)
        self.letters: dict[Place, str] = {}
        self.unread: list[Event] = []
        for event in self.log:
            step, model = placement.step(*event.place), event.model
            name = f"{model}{PART}{event.partition}" if model in in_parts else model
            if step < 0:
                self.unread.append(event)
            elif name is None or "bad" in event.headers:
                self.letters[event.place] = "bad"
            elif placement.home(name, step) != event.partition:
                self.letters[event.place] = STRAY
            else:
                self.taken[name].append(event)

    def learned(self, model: str) -> list[Event]:
        """The events of a model or part that are learned, in order."""
        return [event for event in self.taken[model] if not self.held_out(model, event)]

    def parts_of(self, model: str) -> list[str]:
        """The parts of a model that have events, in the order of their partitions."""
        return sorted((name for name in self.taken if name.startswith(model + PART)), key=self.placement.home)

    def findings(
        self, checkpoints: Iterable[bytes], letters: Iterable[bytes], acknowledged: Iterable[bytes] = ()
    ) -> list[Finding]:
        """Everything that does not add up; ``acknowledged`` are numbers of events."""
        by_model = {checkpoint["model"]: checkpoint for checkpoint in map(read_checkpoint, checkpoints)}
        wholes = [finding for model in self.in_parts for finding in self._merged(model, by_model)]
        reasons, resent = read_letters(letters)
        models = sorted(self.taken.keys() | by_model.keys())
        counts = (finding for model in models for finding in self._counts(model, by_model.get(model)))
        return [*self._numbered(acknowledged, resent), *counts, *wholes, *self._letters(reasons)]

    def _merged(self, model: str, checkpoints: dict[str, Mapping[str, Any]]) -> Iterator[Finding]:
        """The whole of a model in parts has learned what its parts have; its checkpoint is taken out of these."""
        merged = checkpoints.pop(model, {"version": 0})["version"]
        learned = sum(checkpoints[name]["version"] for name in self.parts_of(model) if name in checkpoints)
        if merged != learned:
            yield Finding("merge", abs(merged - learned), f"{model}: {merged} learned, but {learned} by its parts")

    def _numbered(self, acknowledged: Iterable[bytes], resent: set[Place]) -> Iterator[Finding]:
        """Every acknowledged event has one fate: a letter whose event was sent again is none."""
        fates: dict[bytes | None, list[Place]] = defaultdict(list)
        for event in self.log:
            if not (event.place in resent and event.place in self.letters):
                fates[event.headers.get("number")].append(event.place)
        for number in acknowledged:
            places = fates[number]
            if not places:
                yield Finding("lost", 1, f"event {number!r} was acknowledged, but has no fate in the log")
            elif len(places) > 1:
                yield Finding("doubled", len(places) - 1, f"event {number!r} has a fate at each of {in_words(places)}")

    def _counts(self, model: str, checkpoint: Mapping[str, Any] | None) -> Iterator[Finding]:
        """As many events are learned, and as many held out, as should be, and none lies behind the checkpoint."""
        events = self.taken.get(model, [])
        if checkpoint is None:
            yield Finding("lost", len(events), f"{model}: no checkpoint, but events from {in_words(events[:1])} on")
            return
        home, end, progress = checkpoint["home"][1], checkpoint["next"], checkpoint["progress"]
        # A model moves with its first event after a step.
        last = self.placement.step(*events[-1].place) if events else 0
        homes = [self.placement.home(model, step) for step in range(last, len(self.placement.steps))]
        if home not in homes:
            yield Finding("home", 0, f"{model}: lives on partition {home}, not {homes[0]}")
        behind = [event for event in events if event.partition == home and event.offset >= end]
        if behind:
            yield Finding("lost", len(behind), f"{model}: not taken are its events from {in_words(behind[:1])} on")
        taken = len(events) - len(behind)
        held_out = sum(self.held_out(model, event) for event in events[:taken])
        for what, count, due in (
            ("learned", checkpoint["version"], taken - held_out),
            ("held out", progress["hold_out"]["count"], held_out),
            ("compared", progress["mistakes"]["count"], checkpoint["version"]),
        ):
            if count != due:
                text = f"{model}: {count} {what}, expected {due}, from {in_words(events[:1])} to below {home}/{end}"
                yield Finding("doubled" if count > due else "lost", abs(count - due), text)

    def _letters(self, given: Mapping[Place, set[str]]) -> Iterator[Finding]:
        """Each event that must have a letter has one, and no other event has any."""
        taken = {event.place for events in self.taken.values() for event in events}
        for place in sorted(self.letters.keys() | given.keys()):
            reasons, expected = sorted(given.get(place, ())), self.letters.get(place)
            # A letter of a bad event gives one reason, whichever it is.
            if len(reasons) == 1 and expected in ("bad", *reasons):
                continue
            what = "lost" if not reasons else "doubled" if place in taken else "letter"
            text = f"{in_words([place])}: letters {', '.join(reasons) or 'none'}, expected {expected or 'none'}"
            yield Finding(what, 1, text)


def in_words(places: Sequence[Place | Event]) -> str:
    """These positions, in words for a message."""
    return ", ".join(f"{place[0]}/{place[1]}" for place in places) or "no place"
