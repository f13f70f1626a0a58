"""How the senders of a topic choose partitions, and what to set if events lie on the wrong ones.

An event is learned if it lies on its model's home, the partition that ``log.partitioner`` gives the model's name. So
this check compares the partitions of the newest events with those homes. It looks at keys only to find out why an event
lies elsewhere.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from omdml.errors import FeedbackError
from omdml.feedback import decode
from omdml.streams.newest import EVENTS
from omdml.streams.partitioners import PARTITIONERS
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Record
from omdml.streams.resent_events import RESENT
from omdml.workers.configuration.wording import amount, span, when
from omdml.workers.doctor.findings import Remark, error, warning
from omdml.workers.events.decoding import content_type
from omdml.workers.events.unread_fields import UnreadFields
from omdml.workers.operate.topics import advice as advice_on_added

# Senders that were corrected longer ago than this are no error any more.
RECENT_S = 3600.0
# If this many events with the right key came home after a stray one, its sender was corrected, or is rare.
ENOUGH_RIGHT = 50
# What librdkafka calls our partitioners.
LIBRDKAFKA = {"murmur2": "murmur2_random", "crc32": "consistent_random"}


class Cause(enum.StrEnum):
    """Why an event lies on another partition than its model's home."""

    NO_KEY = "no key"
    OTHER_KEY = "another key"
    OTHER_PARTITIONER = "another partitioner"
    OTHER_COUNT = "another number of partitions"
    UNKNOWN = "unknown"


class Example(NamedTuple):
    """The newest event of a cause."""

    record: Record
    model: str


class Senders:
    """What was seen of a topic's newest events.

    Parameters
    ----------
    placement
        Where models live.
    partitions
        The number of partitions that the topic has, to which senders send.
    in_parts
        Models whose events may come by any partition: they are left out.
    """

    def __init__(self, placement: Placement, partitions: int, in_parts: Collection[str] = ()) -> None:
        self.placement, self.partitions = placement, partitions
        self._in_parts = frozenset(in_parts)
        self.partitioner, self.homes = placement.partitioner, placement.count
        self.models: set[str] = set()
        self.unread = UnreadFields()
        self.home = 0
        # These are counted wherever they lie.
        self.keyless = self.otherwise_keyed = 0
        # Whether an event was seen that only the configured partitioner puts where it lies.
        self.only_ours = False
        self.causes: Counter[Cause] = Counter()
        self.newest: dict[Cause, Example] = {}
        # The times of events that are at home by their key.
        self._right_at: list[float] = []

    @property
    def other(self) -> str:
        """The partitioner that is not configured."""
        return next(name for name in PARTITIONERS if name != self.partitioner)

    @property
    def count(self) -> int:
        """How many events were looked at."""
        return self.home + self.causes.total()

    def add(self, record: Record) -> None:
        """Look at one event; what cannot be read names no model, and what ``omdml letters resend`` sent is our own."""
        if any(name == RESENT for name, _ in record.headers):
            return
        kind = content_type(record.headers)
        try:
            event = decode(record.value, kind)
        except FeedbackError:
            return
        self.unread.add(record.value, event, kind)
        model = event.model
        if model in self._in_parts:
            return
        self.models.add(model)
        has_right_key = record.key == model.encode()
        self.keyless += not record.key
        self.otherwise_keyed += bool(record.key) and not has_right_key
        cause = self._cause(record, model)
        if cause is None:
            self.home += 1
            if has_right_key and record.timestamp is not None:
                self._right_at.append(record.timestamp)
            self.only_ours |= has_right_key and record.partition.number != self._number(self.other, model, self.homes)
            return
        self.causes[cause] += 1
        newest_before = self.newest.get(cause)
        if newest_before is None or (record.timestamp or 0.0) >= (newest_before.record.timestamp or 0.0):
            self.newest[cause] = Example(record, model)

    def right_since(self, example: Example) -> int:
        """How many events with the right key came to their homes after this one."""
        since = example.record.timestamp
        return 0 if since is None else sum(time > since for time in self._right_at)

    def _cause(self, record: Record, model: str) -> Cause | None:
        """Why an event is not at home; None if it is."""
        number = record.partition.number
        if self.placement.belongs(model, number, record.offset):
            return None
        if not record.key:
            return Cause.NO_KEY
        if record.key != model.encode():
            return Cause.OTHER_KEY
        if number == self._number(self.partitioner, model, self.partitions):
            return Cause.OTHER_COUNT
        if number in {self._number(self.other, model, count) for count in (self.homes, self.partitions)}:
            return Cause.OTHER_PARTITIONER
        return Cause.UNKNOWN

    @staticmethod
    def _number(partitioner: str, model: str, count: int) -> int:
        return PARTITIONERS[partitioner](model.encode(), count)


def look_at_senders(
    records: Iterable[Record], placement: Placement, partitions: int, in_parts: Collection[str] = ()
) -> Senders:
    """Look at the newest records of a topic; parameters as of :class:`Senders`."""
    senders = Senders(placement, partitions, in_parts)
    for record in records:
        senders.add(record)
    return senders


def advise(senders: Senders, learned: bool, now: float) -> str | list[Remark]:
    """What the senders do, and what to set.

    Parameters
    ----------
    learned
        Whether models have learned from this topic already: then another partitioner needs a rewind.
    now
        Seconds since the epoch.
    """
    looked = f"the newest {amount(senders.count, 'event')}, of {amount(len(senders.models), 'model')},"
    if not senders.count:
        return "the topic holds no events yet that show how senders choose partitions"
    if senders.partitions == 1:
        return f"one partition: {looked} are where they belong, whatever the senders do"
    if not senders.causes:
        return f"{looked} all lie where {senders.partitioner} puts their models"
    advice = {
        Cause.NO_KEY: no_key,
        Cause.OTHER_KEY: other_key,
        Cause.OTHER_PARTITIONER: other_partitioner,
        Cause.OTHER_COUNT: other_count,
        Cause.UNKNOWN: unknown,
    }
    sentences = []
    for cause, count in senders.causes.most_common():
        example = senders.newest[cause]
        age = now - (example.record.timestamp or now)
        sentence = advice[cause](senders, count, looked, learned)
        # By a multiple of the partitions, a model stays where it is, or moves to a new partition that nobody reads yet.
        if cause is Cause.OTHER_COUNT and senders.partitions % senders.homes == 0:
            sentences.append(
                error(f"{sentence} Until then these events wait; none becomes a dead letter ({newest(example, age)}).")
            )
            continue
        right = senders.right_since(example)
        seems_over = age >= RECENT_S or right >= ENOUGH_RIGHT
        sentence = f"{sentence} {fate(example, age, right, seems_over)}"
        sentences.append(warning(sentence) if seems_over else error(sentence))
    return sentences


def mistyped_fields(senders: Senders) -> list[Remark]:
    """A warning about fields that nothing reads and whose names are close to ours. Others may be there on purpose."""
    if not (meant := senders.unread.meant):
        return []
    users = "; omdml forget does not find events whose user is in another field" * ("user" in meant.values())
    return [
        warning(
            f"the newest events have fields that nothing reads: {senders.unread.in_words(meant)}. Events are learned "
            f"without these fields{users}. Have their sender correct the names"
        )
    ]


def newest(example: Example, age: float) -> str:
    """Where the newest of these events lies, and how old it is."""
    (_, number), offset, time = example.record.partition, example.record.offset, example.record.timestamp
    return f"the newest is at {number}/{offset}{f', {when(time)}, {span(age)} ago' if time is not None else ''}"


def fate(example: Example, age: float, right: int, over: bool) -> str:
    """What becomes of these events, how new the newest is, and how long this remark will appear.

    Parameters
    ----------
    right
        Events with the right key that came to their homes since.
    over
        Whether no more of them seem to come.
    """
    where = newest(example, age)
    until = f"The warning stays until {EVENTS} newer events lie in partition {example.record.partition.number}"
    if over:
        since = f"{amount(right, 'event')} with the right key lie at home since" if right else "none came since"
        return (
            f"These events are dead letters, wrong_partition ({where}; {since}). If the senders were corrected, only "
            f"this is left to do: omdml letters resend. {until}"
        )
    return (
        f"Until that is done such events become dead letters, wrong_partition ({where}); afterwards run omdml letters "
        f"resend. This error becomes a warning once the newest is an hour old, or {ENOUGH_RIGHT} events with the right "
        f"key came after it. {until}"
    )


def strayed(count: int) -> str:
    """How many events cannot be learned, because they lie on another partition than their model's home."""
    lie = "lies" if count == 1 else "lie"
    return f"{count:,} of them {lie} on another partition than the one that their model is learned from"


def no_key(senders: Senders, count: int, looked: str, learned: bool) -> str:
    """Clients spread events without a key."""
    model = senders.newest[Cause.NO_KEY].model
    return (
        f"{senders.keyless:,} of {looked} have no key, so Kafka's clients spread them over all partitions: "
        f"{strayed(count)}. Have the sender set the model's name as the key, {model!r} for "
        "instance; if it cannot, have it write to another topic and run omdml route --from TOPIC."
    )


def other_key(senders: Senders, count: int, looked: str, learned: bool) -> str:
    """Clients choose the partition by a key that is not the model's name."""
    record, model = senders.newest[Cause.OTHER_KEY]
    key = (record.key or b"")[:40].decode(errors="replace")
    return (
        f"{senders.otherwise_keyed:,} of {looked} have a key that is not their model's name (for instance {key!r} for "
        f"model {model!r}): {strayed(count)}. Have the sender set the model's name "
        "as the key; if the other key is needed, have it write to another topic and run omdml route --from TOPIC."
    )


def other_partitioner(senders: Senders, count: int, looked: str, learned: bool) -> str:
    """Clients hash the right key in another way."""
    ours, theirs = senders.partitioner, senders.other
    setting = f'log.partitioner = "{theirs}"'
    their_side = f"have these senders choose by {ours} (librdkafka: partitioner={LIBRDKAFKA[ours]})"
    what = f"{count:,} of {looked} lie where {theirs} puts their model, and log.partitioner is {ours!r}."
    if senders.only_ours:
        return f"{what} Others lie only where {ours} puts them, so the senders differ: {their_side}."
    if learned:
        return f"{what} Either {their_side}, or stop the workers, set {setting} and run omdml topics rewind."
    return f"{what} Set {setting} (nothing was learned yet), or {their_side}."


def other_count(senders: Senders, count: int, looked: str, learned: bool) -> str:
    """Clients know of partitions that were added since."""
    return (
        f"{count:,} of {looked} lie where {senders.partitioner} puts their model among {senders.partitions} "
        f"partitions, but models have their homes among {senders.homes}: partitions were added. What to do: "
        f"{advice_on_added(senders.homes, senders.partitions)}."
    )


def unknown(senders: Senders, count: int, looked: str, learned: bool) -> str:
    """Clients choose in a way that is none of ours."""
    record, model = senders.newest[Cause.UNKNOWN]
    return (
        f"{count:,} of {looked} have their model's name as the key, but lie where neither murmur2 nor crc32 puts it "
        f"({model!r} on partition {record.partition.number}): the sender has a partitioner of its own. Have it choose "
        f"by {senders.partitioner} (librdkafka: partitioner={LIBRDKAFKA[senders.partitioner]}), or write to another "
        "topic and run omdml route --from TOPIC."
    )
