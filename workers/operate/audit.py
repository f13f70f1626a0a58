"""``omdml doctor --audit``: adds up the log, the checkpoints and the dead letters.

Each event on its model's home partition must be learned, held out, or a dead letter. Every other event must be a dead
letter. The audit reads marks first, then checkpoints, then letters, then the log. Workers write in the opposite order,
so they may run: an event below a mark or below a model's position has its fate before the audit sees the event.

The memory needed is a few numbers for each model and partition, and eight bytes for each dead letter.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.errors import CorruptError, FeedbackError
from omdml.streams.letters import Offset
from omdml.streams.part_names import part_name, part_of
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.protocols.store import Store
from omdml.workers.configuration.wording import amount_is
from omdml.workers.events.decoding import by_partition, decode_record
from omdml.workers.events.learned_stretches import Stretches
from omdml.workers.model.parts.vector import record_of
from omdml.workers.model.progress import Progress
from omdml.workers.model.tally import Tally

MOST_LETTERS = 10_000_000


class ModelSum(msgspec.Struct):
    """Events of one model at its home.

    The checkpoint counts the events of a stretch of the log. Events without a dead letter are ``events`` if they are in
    that stretch, ``before`` if they are before it, and ``behind`` if they are after it, which means not taken yet.
    Events with a dead letter, in the stretch or after it, are ``letters``. All ``events`` must have been learned or
    held out. An event that has a letter but was learned later, because it was taken again, counts as one without.

    If the model has no checkpoint, ``events`` are those below the mark, and ``behind`` the others. ``elsewhere`` says
    that the model counted events of another log, and none of this one. ``dropped`` says that the log no longer holds
    the first events of the stretch. ``problem`` says why the checkpoint cannot be read.
    """

    name: str
    tally: Tally | None = None
    problem: str = ""
    stretches: Stretches = msgspec.field(default_factory=Stretches)
    before: int = 0
    events: int = 0
    letters: int = 0
    behind: int = 0
    first: int | None = None
    last: int | None = None
    elsewhere: bool = False
    dropped: bool = False

    def add(self, partition: Partition, offset: int, letter: bool, moved: bool, passed: bool) -> None:
        """Count an event on the home partition.

        ``moved`` says that the model lives on this partition since a rehome. ``passed`` says that the event is below
        the mark.
        """
        tally = self.tally
        if tally is None:
            self.letters += letter
            if passed and not letter:
                self._count(offset)
            elif not letter:
                self.behind += 1
            return
        letter = letter and not self.stretches.learned_in_place(partition, offset)
        here = tally.home == str(partition)
        to_be_taken = offset >= tally.until if here else moved
        if to_be_taken:
            self.behind += not letter
            self.letters += letter
        elif not here or offset < tally.since:
            self.before += not letter
        elif letter:
            self.letters += 1
        else:
            self._count(offset)

    def _count(self, offset: int) -> None:
        self.events += 1
        self.first = offset if self.first is None else self.first
        self.last = offset

    @property
    def missing(self) -> int:
        """How many events have no fate; negative if more were learned and held out than the log ever held."""
        if self.problem or self.elsewhere:
            return 0
        tally = self.tally or Tally()
        count = self.events - tally.learned - tally.held - tally.repeated
        return max(0, count) if self.dropped else count


class Strays(msgspec.Struct):
    """Events of a partition that no model in the store learns there.

    Events of models that are not in the store count here if they have a letter or were not taken yet. ``missing``
    counts events without a letter below the mark: they have no fate. ``behind`` counts those that were not taken yet.
    """

    letters: int = 0
    missing: int = 0
    behind: int = 0
    first: int | None = None

    def add(self, offset: int, letter: bool, passed: bool) -> None:
        """Count an event; ``passed`` says that it is below the mark."""
        if letter:
            self.letters += 1
        elif passed:
            self.missing += 1
            self.first = offset if self.first is None else self.first
        else:
            self.behind += 1


class LetterPositions:
    """The positions of the events that became dead letters, each once.

    ``complete`` is False if there are more than ``most``, which are too many to remember.
    """

    def __init__(self, most: int = MOST_LETTERS) -> None:
        self._most, self._count, self.complete = most, 0, True
        self._read: dict[Partition, array[int]] = {}
        self._offsets: dict[Partition, NDArray[np.int64]] = {}

    def read(self, records: Iterable[Record]) -> None:
        """Add these records of the dead letters' log."""
        for record in records:
            try:
                position = _positions.decode(record.value)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                # A torn line, a note that the event of a letter was sent again, or no position of any log.
                continue
            self._count += 1
            if self._count > self._most:
                self.complete = False
                return
            self._read.setdefault(position.partition, array("q")).append(position.offset)

    def about(self, partition: Partition, offsets: list[int]) -> list[bool]:
        """Whether each of the events at these offsets has a letter."""
        if partition in self._read:
            self._offsets[partition] = np.unique(np.frombuffer(self._read.pop(partition), np.int64))
        offsets_with_letter = self._offsets.get(partition)
        if offsets_with_letter is None:
            return [False] * len(offsets)
        nearest = np.minimum(np.searchsorted(offsets_with_letter, offsets), len(offsets_with_letter) - 1)
        matches: list[bool] = (offsets_with_letter[nearest] == offsets).tolist()
        return matches


class _Position(msgspec.Struct, frozen=True):
    partition: Partition
    offset: Offset


_positions = msgspec.json.Decoder(_Position)


class Audit:
    """The sums of all models and partitions, which grow while the log is read.

    Parameters
    ----------
    marks
        For each partition, the offset below which everything is in checkpoints or letters.
    placement
        The partitions that models live on now, and lived on before.

    Attributes
    ----------
    unknown
        The number of events without a letter for each model that is not in the store.
    ends
        The offset after the last event of each partition.
    """

    def __init__(
        self, marks: Mapping[Partition, int], models: Iterable[ModelSum], letters: LetterPositions, placement: Placement
    ) -> None:
        self.marks, self.letters, self.placement = marks, letters, placement
        self.models = {model.name: model for model in models}
        # Models whose events are learned by the part of their partition.
        self._in_parts = {part.model for name in self.models if (part := part_of(name))}
        self.strays: dict[Partition, Strays] = {}
        self.unknown: dict[str, int] = {}
        self.ends: dict[Partition, int] = {}

    def read(self, records: list[Record]) -> None:
        """Count a part of the log."""
        for partition, part in by_partition(records).items():
            mark, self.ends[partition] = self.marks.get(partition, 0), part[-1].offset + 1
            since = self.placement.since(partition.number)
            about = self.letters.about(partition, [record.offset for record in part])
            for record, letter in zip(part, about, strict=True):
                name = named(record)
                if name in self._in_parts:
                    name = part_name(name, partition.number)
                if name is None or not self.placement.belongs(name, partition.number, record.offset):
                    self.strays.setdefault(partition, Strays()).add(record.offset, letter, record.offset < mark)
                elif name in self.models:
                    moved = self.placement.home(name) == partition.number and record.offset >= since
                    self.models[name].add(partition, record.offset, letter, moved, record.offset < mark)
                elif letter:
                    self.strays.setdefault(partition, Strays()).letters += 1
                elif record.offset < mark:
                    self.unknown[name] = self.unknown.get(name, 0) + 1
                else:
                    self.strays.setdefault(partition, Strays()).behind += 1


def sums(store: Store) -> Iterator[ModelSum]:
    """The counts of every model in the store, from its newest checkpoint."""
    for name in store.models():
        try:
            checkpoint = store.peek(name)
            if checkpoint is None:
                yield ModelSum(name)
                continue
            if record_of(checkpoint) is not None:
                # It takes no events itself: its parts do.
                continue
            progress = Progress.of(checkpoint)
            tally = progress.tally.resumed(Partition(*checkpoint.home), checkpoint.next)
            yield ModelSum(name, tally, stretches=Stretches(progress.stretches))
        except CorruptError as error:
            yield ModelSum(name, problem=str(error))


def named(record: Record) -> str | None:
    """The model that this event is for; None if it cannot be decoded, or names a part, which no sender can reach."""
    try:
        name = decode_record(record).model
    except FeedbackError:
        return None
    return None if part_of(name) else name


class Report(NamedTuple):
    """What does not add up, as a sentence for each model (the empty name for no model), and what cannot be known."""

    wrong: dict[str, str]
    limits: list[str]


def report(audit: Audit, begins: Mapping[Partition, int]) -> Report:
    """Judge the sums after the whole log was read. ``begins`` has the first offset that the log still holds."""
    wrong, shortened = {}, []
    for model in audit.models.values():
        tally = model.tally
        home = next((place for place in begins if tally and str(place) == tally.home), None)
        begin = begins[home] if home else 0
        model.elsewhere = bool(tally and tally.home and not home)
        model.dropped = tally is not None and tally.since < begin
        end = max(begin, audit.ends.get(home, 0)) if home else None
        if text := _wrong(model, end, audit.letters.complete):
            wrong[model.name] = text
        elif model.dropped:
            shortened.append(model.name)
    lost = [f"{strays.missing:,} in partition {partition.number}, from offset {strays.first} on"
            for partition, strays in audit.strays.items() if strays.missing]  # fmt: skip
    if lost and audit.letters.complete:
        wrong[""] = (
            f"events below the mark that no model learns and that have no dead letter: {'; '.join(lost)}. Check "
            "whether letters were deleted; if not, report it, with the log and the letters"
        )
    return Report(wrong, _limits(audit, shortened))


def _wrong(model: ModelSum, end: int | None, letters_complete: bool) -> str:
    if model.problem:
        return model.problem
    again = f"To learn it again from the log: omdml replay --model {model.name} --publish --replace"
    tally, missing = model.tally, model.missing
    if tally is None:
        if not missing or not letters_complete:
            return ""
        return (
            f"the store lists the model but has no checkpoint of it, and {missing:,} of its events, at offsets "
            f"{model.first} to {model.last}, are below the mark and are not dead letters: what was learned from them "
            f"is lost. {again}"
        )
    if end is not None and tally.until > end:
        return (
            f"its checkpoint is at offset {tally.until}, but the log ends at {end}: the log was cut or restored. "
            "To go on from the log's end: omdml worker --accept-gap"
        )
    if missing > 0 and letters_complete:
        forgets = ". This forgets what was learned from events that the log no longer holds" if model.dropped else ""
        return (
            f"{missing:,} of {model.events:,} events at offsets {model.first} to {model.last} are neither learned nor "
            f"held out nor dead letters. {again}{forgets}"
        )
    if missing < 0:
        return (
            f"{-missing:,} more events were learned and held out than the log holds at offsets {tally.since} to "
            f"{tally.until - 1}. If the topic was compacted, or somebody removed records, the log lost them and the "
            "model knows them: leave it as it is, because a replay would forget them. Otherwise they were learned "
            f"twice: omdml replay --model {model.name} --publish --replace"
        )
    return ""


def _limits(audit: Audit, shortened: list[str]) -> list[str]:
    """Sentences about what these sums cannot show."""
    uncounted = {model.name: model.before for model in audit.models.values() if model.before}
    from_first = {
        name: count for name, count in uncounted.items() if (tally := audit.models[name].tally) and tally.anew
    }
    from_later = {name: count for name, count in uncounted.items() if name not in from_first}
    lines = []
    if from_first:
        lines.append(
            f"{amount_is(sum(from_first.values()), 'event')} before the first one that {_listed(from_first)} learned: "
            "unless the model was deleted or rewound since, they were lost. To learn them: omdml replay "
            "--model NAME --publish --replace"
        )
    if from_later:
        lines.append(
            f"{amount_is(sum(from_later.values()), 'event')} before the place at which counting of "
            f"{_listed(from_later)} began: the model was reset, copied, rewound, rehomed, or saved by a "
            "release that did not count"
        )
    if elsewhere := [model.name for model in audit.models.values() if model.elsewhere]:
        lines.append(
            f"{_listed(elsewhere)} learned from another log and took no event of this one: what was learned there is "
            "not checked"
        )
    if shortened:
        lines.append(
            f"the counts of {_listed(shortened)} begin with events that the log no longer holds: retention, or an "
            "operator, deleted them after they were learned. What was learned from them stays, but a replay would "
            "forget it"
        )
    if audit.unknown:
        lines.append(
            f"{amount_is(sum(audit.unknown.values()), 'event')} about {_listed(audit.unknown)}, which the store does "
            "not have: deleted by an operator, or lost"
        )
    if not audit.letters.complete:
        lines.append(
            "some dead letters were deleted, or there are too many to remember: an event without one may have had one"
        )
    return lines


def _listed(names: Iterable[str]) -> str:
    """Three of these names, and how many more there are."""
    every = sorted(names)
    more = f" and {len(every) - 3:,} more models" if every[3:] else ""
    return ", ".join(map(repr, every[:3])) + more
