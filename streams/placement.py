"""Where models live: arithmetic on a model's name and the number of partitions, recorded once per log in the store.

``home(model) = partitioner(model) mod count``. Which partition an event came by never decides anything.

Partitions that are added to a topic change nothing until ``omdml topics rehome`` adds a step with the new count. The
new count is a multiple of the one before it. So a model stays on its partition, or it moves to one that nobody has read
yet: all of its earlier events lie on its old partition below the step, all later ones on its new partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from omdml.errors import StoreError, StoreRefused
from omdml.formats import PLACEMENT, Numbered
from omdml.streams.part_names import part_of
from omdml.streams.partitioners import PARTITIONERS


class PlacementChanged(StoreRefused):
    """The placement of a log's models changed while this process worked with the earlier one."""

    needs_operator = False

    def __init__(self, topic_id: str) -> None:
        super().__init__(
            f"log {topic_id}: the record of where its models live changed (omdml topics rehome, or a cut of the log "
            "that was accepted) while this process was at work: it ends without saving, start it again"
        )


class PlacementStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number of partitions, and from which offset on it holds in each of them (0 if a partition is not named)."""

    count: int
    since: dict[int, int] = {}


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The homes of all models of one log.

    Parameters
    ----------
    partitioner
        A name in :data:`omdml.streams.partitioners.PARTITIONERS`; the key is the model's name.
    steps
        The number of partitions at first, then after each rehome. The last one counts; those before it tell where a
        model lived when its last checkpoint was saved, and where earlier events belong when the log is read again.
    """

    partitioner: str
    steps: tuple[PlacementStep, ...]
    format: int = PLACEMENT.number

    @classmethod
    def first(cls, partitioner: str, count: int) -> Placement:
        """The placement of a log that no worker has read yet."""
        return cls(partitioner, (PlacementStep(count),))

    @property
    def count(self) -> int:
        """How many partitions models live on."""
        return self.steps[-1].count

    def home(self, model: str) -> int:
        """The number of the partition that a model lives on."""
        return self._home(model, self.count)

    def since(self, partition: int) -> int:
        """The offset of a partition from which on the present count holds there."""
        return self.steps[-1].since.get(partition, 0)

    def belongs(self, model: str, partition: int, offset: int) -> bool:
        """Whether an event of a model at this place is on its home, by the count that held there."""
        count = next(step.count for step in reversed(self.steps) if step.since.get(partition, 0) <= offset)
        return self._home(model, count) == partition

    def left(self, model: str, partition: int) -> int | None:
        """The offset of a partition from which on a model that lived there lives elsewhere; None if it never did."""
        lived_here = False
        for step in self.steps:
            lives_here = self._home(model, step.count) == partition
            if lived_here and not lives_here:
                return step.since.get(partition, 0)
            lived_here = lives_here
        return None

    def grown(self, count: int, since: Mapping[int, int]) -> Placement:
        """The placement on more partitions, from these offsets on."""
        return Placement(self.partitioner, (*self.steps, PlacementStep(count, dict(sorted(since.items())))))

    def rewound(self, starts: Mapping[int, int], partitioner: str) -> Placement:
        """The placement with which the log can be learned again from these offsets on, in the order of its events."""
        first, *later = self.steps
        reached = [
            step for step in later if all(since <= starts.get(number, 0) for number, since in step.since.items())
        ]
        return Placement(partitioner, (first, *reached))

    def cut(self, partition: int, offset: int) -> Placement:
        """The placement after the log lost everything from this offset on: events that come there are new."""
        steps = [
            PlacementStep(
                step.count,
                {number: min(since, offset) if number == partition else since for number, since in step.since.items()},
            )
            for step in self.steps[1:]
        ]
        return Placement(self.partitioner, (self.steps[0], *steps))

    def _home(self, model: str, count: int) -> int:
        # A part lives on the partition that it is named after, however many there are.
        if part := part_of(model):
            return part.number
        return PARTITIONERS[self.partitioner](model.encode(), count)

    def encode(self) -> bytes:
        """JSON; the same placement always has the same bytes."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes, where: str) -> Placement:
        """The inverse of :meth:`encode`; raises StoreError if these bytes are no placement."""
        try:
            PLACEMENT.check(msgspec.json.decode(data, type=Numbered).format, f"{where}: placement", StoreError)
            return msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StoreError(
                f"{where}: the placement of models on partitions cannot be read ({error}): restore the store from a "
                "backup"
            ) from error


class Assumed(NamedTuple):
    """Where the models of a log live, as a writer knows it.

    A store refuses what the writer writes if another placement is recorded.
    """

    topic_id: str
    placement: Placement
