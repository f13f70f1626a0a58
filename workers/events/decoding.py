"""From records to comparisons: decode each event, find its model, name the items of its comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress, repeat
from typing import Any, NamedTuple, TypeVar

from omdml.comparisons import Conversion, conversion
from omdml.errors import FeedbackError
from omdml.feedback import KINDS, MAX_COMPARISONS, AnyFeedback, decode, kind_of
from omdml.messages.suggestion import nearest
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.resent_events import RESENT

JSON = "application/json"
# The kind of an event that does not decode.
UNKNOWN = "unknown"

# The most comparisons of a piece: about a second of the widest models.
PIECE = 32_000
# At least this many bytes of an event are no ids. Two ids, one on either side of its comparisons, take at least 12.
ENVELOPE_BYTES, NAME_BYTES = 64, 12
# The clocks of two machines may differ by so much although both are right.
CLOCKS_DIFFER_S = 1.0
Value = TypeVar("Value")


class Refusal(NamedTuple):
    """An event that becomes a dead letter. ``kind`` is its kind of feedback, empty if it was not decoded yet."""

    record: Record
    error: FeedbackError
    model: str | None = None
    kind: str = ""

    @classmethod
    def of(cls, record: Record, error: FeedbackError, model: str | None, kind: str) -> Refusal:
        """A refusal whose error holds no traceback: with one, thousands of them keep the garbage collector busy."""
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return cls(record, error, model, kind)


class Batch:
    """The events of one model among the records at hand, in order."""

    __slots__ = ("events", "id_counts", "ids", "records", "times")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.events: list[AnyFeedback] = []
        # The ids of the compared items, event by event.
        self.ids: list[str] = []
        # How many of these ids each event has.
        self.id_counts: list[int] = []
        # When each event happened, in seconds since the epoch.
        self.times: list[float | None] = []

    def add(self, record: Record, event: AnyFeedback, ids: list[str]) -> None:
        """Add an event with the items of its comparisons."""
        self.records.append(record)
        self.events.append(event)
        self.ids += ids
        self.id_counts.append(len(ids))
        self.times.append(event_time(event.at, record.timestamp))

    @property
    def inline(self) -> bool:
        """Whether an event brings vectors of its own."""
        return any(event.features is not None for event in self.events)

    @property
    def identified(self) -> bool:
        """Whether an event brings an id of its own."""
        return any(event.id is not None for event in self.events)

    @property
    def resent(self) -> bool:
        """Whether an event is a copy of one that became a dead letter."""
        # Loops, because this is asked about every batch: a generator expression takes 1.7 times as long.
        for record in self.records:
            for header in record.headers:
                if header[0] == RESENT:
                    return True
        return False

    @property
    def ahead(self) -> int:
        """How many events claim a time well after they were logged, so that one of the two clocks is wrong."""
        pairs = zip(self.events, self.times, strict=True)
        return sum(logged is not None and (event.at or 0.0) > logged + CLOCKS_DIFFER_S for event, logged in pairs)

    def entries(self) -> Iterator[tuple[Record, AnyFeedback, list[str]]]:
        """Every event with the items of its comparisons, as :meth:`add` took them."""
        start = 0
        for record, event, count in zip(self.records, self.events, self.id_counts, strict=True):
            yield record, event, self.ids[start : start + count]
            start += count

    def since(self, offset: int) -> Batch:
        """The events at or after an offset."""
        return self.only([record.offset >= offset for record in self.records])

    def before(self, offset: float) -> Batch:
        """The events of the batch whose offsets lie before this one."""
        return self.only([record.offset < offset for record in self.records])

    def only(self, stay: list[bool]) -> Batch:
        """The batch with only the events whose flag is true."""
        subset = Batch()
        for name in ("records", "events", "id_counts", "times"):
            setattr(subset, name, list(compress(getattr(self, name), stay)))
        subset.ids = list(compress(self.ids, chain.from_iterable(map(repeat, stay, self.id_counts))))
        return subset

    def without(self, events: Sequence[int]) -> Batch:
        """The batch without these events, whose indices ascend. If they are few, this is quicker than :meth:`only`."""
        subset, starts = Batch(), list(accumulate(self.id_counts, initial=0))
        for name in ("records", "events", "id_counts", "times"):
            setattr(subset, name, without_indices(getattr(self, name), events))
        ids = chain.from_iterable(range(starts[event], starts[event + 1]) for event in events)
        subset.ids = without_indices(self.ids, ids)
        return subset

    def kinds(self, offsets: Collection[int] | None = None) -> Counter[str]:
        """How many events there are of each kind; if offsets are given, only of those."""
        pairs = zip(self.records, self.events, strict=True)
        events = self.events if offsets is None else [event for record, event in pairs if record.offset in offsets]
        # The types are counted first, because that takes no call for each event.
        return Counter({KINDS[kind]: count for kind, count in Counter(map(type, events)).items()})


def without_indices(values: list[Value], indices: Iterable[int]) -> list[Value]:
    """A copy of the values without those at these indices, which ascend."""
    remaining: list[Value] = []
    start = 0
    for index in indices:
        remaining += values[start:index]
        start = index + 1
    return remaining + values[start:]


def sort_out(
    records: Iterable[Record], accepts: Callable[[str], frozenset[str] | None]
) -> tuple[dict[str, Batch], dict[str | None, list[Refusal]]]:
    """Decode records into a batch for each model, and refusals by model: under None if an event does not decode.

    Parameters
    ----------
    accepts
        Answers the kinds of comparison a model learns from, None if no such model is configured; raises FeedbackError
        if events of this model cannot be learned here.
    """
    batches: dict[str, Batch] = {}
    refused: dict[str | None, list[Refusal]] = {}
    conversions: dict[str, Conversion | FeedbackError] = {}
    for record in records:
        try:
            event = decode_record(record)
        except FeedbackError as error:
            refused.setdefault(None, []).append(Refusal.of(record, error, None, UNKNOWN))
            continue
        model = event.model
        if model not in conversions:
            conversions[model] = _conversion_of(model, accepts)
        convert = conversions[model]
        if isinstance(convert, FeedbackError):
            refused.setdefault(model, []).append(Refusal(record, convert, model, kind_of(event)))
            continue
        try:
            ids = convert(event)
        except FeedbackError as error:
            refused.setdefault(model, []).append(Refusal.of(record, error, model, kind_of(event)))
            continue
        if model not in batches:
            batches[model] = Batch()
        batches[model].add(record, event, ids)
    return batches, refused


def _conversion_of(model: str, accepts: Callable[[str], frozenset[str] | None]) -> Conversion | FeedbackError:
    """What turns events of a model into comparisons, or why nothing can."""
    try:
        kinds = accepts(model)
    except FeedbackError as error:
        return error
    return unknown_model(model) if kinds is None else conversion(kinds)


def by_partition(records: Iterable[Record]) -> dict[Partition, list[Record]]:
    """Records grouped by partition, in the order of their offsets."""
    partitions: dict[Partition, list[Record]] = {}
    for record in records:
        partitions.setdefault(record.partition, []).append(record)
    return partitions


def piece_length(records: Sequence[Record]) -> int:
    """How many of these records to learn before the worker looks at its clock and its signals again.

    The records are not decoded yet, so their bytes tell how many comparisons they have at most: n names on either side
    are n * n comparisons, up to an event's limit.
    """
    longest = max(len(record.value) for record in records)
    if len(records) * compared_at_most(longest) <= PIECE:
        return len(records)
    room = PIECE
    for count, record in enumerate(records):
        room -= compared_at_most(len(record.value))
        if room < 0:
            return max(1, count)
    return len(records)


def compared_at_most(size: int) -> int:
    """How many comparisons an event of so many bytes may stand for."""
    names = max(1, (size - ENVELOPE_BYTES) // NAME_BYTES)
    return min(MAX_COMPARISONS, names * names)


def decode_record(record: Record) -> AnyFeedback:
    """The event of a record; raises FeedbackError."""
    return decode(record.value, content_type(record.headers))


def kind_of_record(record: Record) -> str:
    """The kind of feedback of a refused event; ``unknown`` if it cannot be decoded."""
    try:
        return kind_of(decode_record(record))
    except FeedbackError:
        return UNKNOWN


def event_time(claimed: float | None, logged: float | None) -> float | None:
    """When an event happened, seconds since the epoch: what it says of itself, but never later than it was logged."""
    if claimed is None or logged is None:
        return logged if claimed is None else claimed
    return min(claimed, logged)


def span_of(batch: Batch, refused: list[Refusal]) -> tuple[int, int]:
    """The first and the last offset of a model's events, the refused ones included."""
    offsets = [record.offset for record in (*batch.records, *(refusal.record for refusal in refused))]
    return min(offsets), max(offsets)


def wrong_partition(model: str, partition: Partition, placement: Placement) -> FeedbackError:
    """The error for an event that came by another partition than its model's home."""
    return FeedbackError(
        f"events of model {model!r} belong on partition {placement.home(model)} ({placement.partitioner} of the "
        f"model's name, modulo {placement.count}), but this one came by partition {partition.number}. Have its sender "
        "use the model's name as key and this partitioner (omdml doctor says which one senders use). Then run omdml "
        "letters resend",
        reason="wrong_partition",
    )


def unknown_model(model: str, configured: Iterable[str] = ()) -> FeedbackError:
    """The error for a model that nothing in the configuration covers; suggests the nearest of those ``configured``."""
    near = nearest(model, configured)
    question = f"did you mean {near!r}? Otherwise " if near else ""
    return FeedbackError(
        f"no model {model!r} is configured: {question}add [models.{model!r}] or a pattern that matches it",
        reason="unknown_model",
    )


def content_type(headers: tuple[tuple[str, Any], ...]) -> str:
    """The content type that a record's headers name; JSON if they name none."""
    for name, value in headers:
        if name == "content-type":
            return bytes(value).decode("ascii", "replace")
    return JSON
