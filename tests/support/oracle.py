"""An oracle: what must have become of every event, and whether it did. It shares no code with the product.

Everything follows from the log and the placement: an event that came by its model's partition is learned or held out,
every other one is a dead letter. Events of a model in parts may come by any partition, whose part learns them. Which
events are bad by their content the test says, for it made them. Findings hold this against the numbers that events were
sent with, checkpoints, letters and metrics, and name positions.

Events have one comparison each, so that a checkpoint's ``version`` counts events.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from tests.support.records import Event, Place, read_checkpoint, read_letters

WORD = 0xFFFFFFFF
STRAY = "wrong_partition"


@lru_cache
def murmur2(key: bytes) -> int:
    """Kafka's own hash, its sign bit dropped."""
    hashed, whole = 0x9747B28C ^ len(key), len(key) // 4 * 4
    for start in range(0, whole, 4):
        part = int.from_bytes(key[start : start + 4], "little") * 0x5BD1E995 & WORD
        part = (part ^ part >> 24) * 0x5BD1E995 & WORD
        hashed = hashed * 0x5BD1E995 & WORD ^ part
    if key[whole:]:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * 0x5BD1E995 & WORD
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & WORD
    return (hashed ^ hashed >> 15) & 0x7FFFFFFF


@lru_cache
def crc32(key: bytes) -> int:
    """The checksum of zip files, by which librdkafka places keyed messages unless told otherwise."""
    hashed = WORD
    for byte in key:
        hashed ^= byte
        for _ in range(8):
            hashed = hashed >> 1 ^ (0xEDB88320 if hashed & 1 else 0)
    return hashed ^ WORD


HASHES: dict[str, Callable[[bytes], int]] = {"murmur2": murmur2, "crc32": crc32}


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
        """The home partition of a model."""
        return HASHES[self.partitioner](model.encode()) % self.steps[step].partitions


# Between the name of a model in parts and the number of the partition that a part learns.
PART = "::part-"


def part(model: str, partition: int) -> str:
    """What the part of a model is called that learns this partition."""
    return f"{model}{PART}{partition}"


# One of so many events is held out, unless a test configures another number.
GUARD_EVERY = 50


def drawn(secret: bytes, every: int) -> Callable[[str, Event], bool]:
    """Whether an event is held out, by the store's secret: a keyed hash of the model's name and the event's place."""

    def held_out(model: str, event: Event) -> bool:
        hashed = blake2b(model.encode(), key=secret, digest_size=8)
        hashed.update(event.partition.to_bytes(4, "big") + event.offset.to_bytes(8, "big"))
        return int.from_bytes(hashed.digest(), "big") % every == 0

    return held_out


class Finding(NamedTuple):
    """Something that does not add up: a word for it, so many events, and a sentence that names positions."""

    what: str
    events: int
    text: str


class Oracle:
    """Says what must have become of every event of a log.

    Parameters
    ----------
    bad
        Says of an event whether the test made it so that it cannot be learned, whichever partition it came by.
    held_out
        Says whether a model's event is held out (:func:`drawn`). Without it only sums are judged: learned + held out.
    in_parts
        Models in parts. Each part is judged as a model of its own, by the name that :func:`part` gives it.

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
        bad: Callable[[Event], bool] = lambda _: False,
        held_out: Callable[[str, Event], bool] | None = None,
        in_parts: Collection[str] = (),
    ) -> None:
        self.placement, self.log, self.held_out, self.in_parts = placement, list(log), held_out, in_parts
        self.taken: dict[str, list[Event]] = defaultdict(list)
        self.letters: dict[Place, str] = {}
        self.unread: list[Event] = []
        steps: dict[Place, int] = {}
        for event in self.log:
            step, model = placement.step(*event.place), event.model
            if step < 0:
                self.unread.append(event)
            elif model is None or bad(event):
                self.letters[event.place] = "bad"
            elif model in in_parts:
                steps[event.place] = step
                self.taken[part(model, event.partition)].append(event)
            elif placement.home(model, step) != event.partition:
                self.letters[event.place] = STRAY
            else:
                steps[event.place] = step
                self.taken[model].append(event)
        for events in self.taken.values():
            # A model goes on in its new partition only when everything in the old one is learned.
            events.sort(key=lambda event: (steps[event.place], event.offset))

    def findings(
        self,
        checkpoints: Iterable[bytes],
        letters: Iterable[bytes],
        acknowledged: Iterable[bytes] | None = None,
        header: str = "number",
    ) -> list[Finding]:
        """Everything that does not add up; ``acknowledged`` events carry their number in this header."""
        kept = {checkpoint["model"]: checkpoint for checkpoint in map(read_checkpoint, checkpoints)}
        wholes = [finding for model in self.in_parts for finding in self._merged(model, kept)]
        result, resent = read_letters(letters)
        numbered = () if acknowledged is None else self._numbered(acknowledged, header, resent)
        models = sorted(self.taken.keys() | kept.keys())
        sums = (finding for model in models for finding in self._sums(model, kept.get(model)))
        return [*numbered, *sums, *wholes, *self._letters(result)]

    def parts_of(self, model: str) -> list[str]:
        """The parts of a model that have events, in the order of their partitions."""
        return [part(model, number) for number in range(self.placement.steps[-1].partitions)
                if part(model, number) in self.taken]  # fmt: skip

    def _merged(self, model: str, kept: dict[str, Mapping[str, Any]]) -> Iterator[Finding]:
        """The whole of a model in parts has learned what its parts have; its checkpoint is taken out of ``kept``."""
        whole, parts = kept.pop(model, None), [kept[name] for name in self.parts_of(model) if name in kept]
        merged, learned = whole["version"] if whole else 0, sum(checkpoint["version"] for checkpoint in parts)
        if merged != learned:
            yield Finding("merge", abs(merged - learned), f"{model}: {merged} learned, but {learned} by its parts")

    def _numbered(self, acknowledged: Iterable[bytes], header: str, resent: set[Place]) -> Iterator[Finding]:
        """Every acknowledged event has one fate: a letter whose event was sent again is none."""
        places: dict[bytes | None, list[Place]] = defaultdict(list)
        for event in self.log:
            places[event.headers.get(header)].append(event.place)
        for number in acknowledged:
            lie = places.get(number, [])
            fates = [place for place in lie if not (place in resent and place in self.letters)]
            if not fates:
                yield Finding("lost", 1, f"event {number!r} was acknowledged, the log holds it at {said(lie)}")
            elif len(fates) > 1:
                yield Finding("doubled", len(fates) - 1, f"event {number!r} has a fate at each of {said(fates)}")

    def _sums(self, model: str, checkpoint: Mapping[str, Any] | None) -> Iterator[Finding]:
        """Learned and held out are as many as the events at home, and none of these lies behind the checkpoint."""
        events = self.taken.get(model, [])
        if checkpoint is None:
            yield Finding("lost", len(events), f"{model}: no checkpoint, but events from {said(events[:1])} on")
            return
        home, learned, progress = checkpoint["home"][1], checkpoint["version"], checkpoint["progress"]
        held, compared = progress["hold_out"]["count"], progress["mistakes"]["count"]
        # A model moves with its first event after a step.
        last = self.placement.step(*events[-1].place) if events else 0
        homes = [self.placement.home(model, step) for step in range(last, len(self.placement.steps))]
        if model.rpartition(PART)[0] in self.in_parts:
            homes = [events[-1].partition]
        if home not in homes:
            yield Finding("home", 0, f"{model}: lives on partition {home}, not {homes[0]}")
        if learned != compared:
            yield Finding("count", abs(learned - compared), f"{model}: version {learned}, but {compared} were compared")
        behind = [event for event in events if event.partition == home and event.offset >= checkpoint["next"]]
        if behind:
            yield Finding("lost", len(behind), f"{model}: not taken are its events from {said(behind[:1])} on")
        over = learned + held - len(events) + len(behind)
        due = held if self.held_out is None else len(events) - len(behind) - len(self.learned(model, behind))
        if held != due:
            yield Finding("count", abs(held - due), f"{model}: {held} were held out, but {due} should have been")
        if over:
            text = f"{model}: {learned} learned + {held} held out, but {len(events) - len(behind)} events taken"
            where = f"from {said(events[:1])} to below {home}/{checkpoint['next']}"
            yield Finding("doubled" if over > 0 else "lost", abs(over), f"{text}, {where}")

    def _letters(self, found: Mapping[Place, set[str]]) -> Iterator[Finding]:
        """Each event that must have a letter has one, and no other event has any."""
        taken = {event.place: model for model, events in self.taken.items() for event in events}
        for place in self.letters.keys() - found.keys():
            yield Finding("lost", 1, f"{said([place])}: no letter about an event that must have one")
        for place, reasons in found.items():
            told = f"{said([place])}: a letter ({', '.join(sorted(reasons))})"
            if place in taken:
                yield Finding("doubled", 1, f"{told} about an event that {taken[place]} learned")
            elif place not in self.letters:
                yield Finding("letter", 1, f"{told} about an event that is not there, or not read yet")
            elif len(reasons) > 1 or self.letters[place] == STRAY != min(reasons):
                yield Finding("letter", 1, f"{told}, expected one reason: {self.letters[place]}")

    def learned(self, model: str, without: Sequence[Event] = ()) -> list[Event]:
        """The events of a model that are learned, in order."""
        taken = self.taken[model][: len(self.taken[model]) - len(without)]
        return [event for event in taken if not (self.held_out and self.held_out(model, event))]

    def outcomes(self) -> Counter[str]:
        """What the metrics of workers must add up to if none of them was killed or took over what another had taken."""
        return Counter(taken=sum(map(len, self.taken.values())), refused=len(self.letters))


def not_learned_once(
    log: Iterable[Event], checkpoints: Iterable[bytes], numbers: Iterable[bytes], header: str = "number"
) -> list[Finding]:
    """What does not add up once the event of every dead letter was sent again, under its number, and learned.

    It does not matter then which of the places of a number was learned: each number counts once.
    """
    due: dict[str | None, set[bytes]] = defaultdict(set)
    wanted, results = set(numbers), []
    for event in log:
        if (number := event.headers.get(header)) in wanted:
            due[event.model].add(number)
    if missing := wanted - set().union(*due.values()):
        results.append(Finding("lost", len(missing), f"acknowledged, but not in the log: {sorted(missing)}"))
    kept = {checkpoint["model"]: checkpoint for checkpoint in map(read_checkpoint, checkpoints)}
    for model, events in due.items():
        checkpoint = kept.get(model or "")
        count = checkpoint["version"] + checkpoint["progress"]["hold_out"]["count"] if checkpoint else 0
        if over := count - len(events):
            text = f"{model}: {count} learned or held out of {len(events)} different events"
            results.append(Finding("doubled" if over > 0 else "lost", abs(over), text))
    return results


def said(places: Sequence[Place | Event]) -> str:
    """These positions, in words for a message."""
    return ", ".join(f"{place[0]}/{place[1]}" for place in places) or "no place"
