"""Models in parts: their parts are added up and published by the worker that owns the whole model's home.

1. claim     the whole model. Its epoch rises, so that an earlier owner can publish nothing more. Its checkpoint says
             which positions of its parts were merged last.
2. read      the newest checkpoints of all parts, in the order of their numbers. Nothing was written yet.
3. compare   their positions with those merged last. Unless every part is as far as it was, or further, nothing is done:
             a part that fell back catches up from the log. What a part learned from an earlier log counts as offset 0.
4. merge     the checkpoints, as absolute sums. The guard judges the result by what all parts hold out.
5. save      the whole model's checkpoint, with the positions. A crash after it: the next owner merges once more, from
             these positions or later ones, and publishes that.
6. publish   the snapshot. It is never of earlier positions than a snapshot before it, because step 5 comes first and
             is refused to all but the owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from omdml.errors import ConfigurationError, CorruptError, ParameterError, StoreLost
from omdml.snapshot import Checkpoint
from omdml.streams.part_names import part_name, part_of
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Store, Written
from omdml.workers.configuration.specs import Specs
from omdml.workers.learning.metrics import WITHHELD
from omdml.workers.learning.partition.owned_partition import OwnedPartition
from omdml.workers.learning.services import Services
from omdml.workers.model.parts.merged_model import MergedModel, begin, resumed
from omdml.workers.model.parts.vector import Vector, offset_in, record_of, was_in_parts
from omdml.workers.model.written import check_written

# The largest share of its time for which a worker merges.
SHARE = 0.25
# Seconds between two looks whether parts were saved; between two while a command changes them; after trouble.
LOOK_S, PENDING_S, AGAIN_S = 0.1, 1.0, 10.0
# Seconds after which a trouble that stays the same is logged again.
REMIND_S = 60.0

log = structlog.get_logger(__name__)


def positions_of(name: str, store: Store, owned: OwnedPartition, merged: Vector) -> dict[int, int]:
    """The positions that the parts' checkpoints have in this log, by the number of the part.

    A log that was made again may have fewer partitions, so parts that were ``merged`` before are looked at, too. To
    look at all parts of a model takes about as long as to look at one.
    """
    numbers = {part_name(name, number): number for number in {*range(owned.placement.count), *merged.positions}}
    positions = store.positions(list(numbers))
    return {numbers[part]: offset_in(owned.partition.topic_id, *position) for part, position in positions.items()}


@dataclass
class Whole:
    """A whole model that is merged here: its claim, and what was merged last.

    Attributes
    ----------
    owned
        The home partition as it was when the model was claimed. If it is another object, the worker gave the partition
        up and took it over again.
    merged
        Positions that were looked at and merged last.
    look_from
        Clock time before which nothing is looked at.
    unpublished
        Whether the live snapshot was made from other positions than those in the checkpoint.
    """

    owned: OwnedPartition
    model: MergedModel | None = None
    merged: Mapping[int, int] | None = None
    look_from: float = float("-inf")
    unpublished: bool = False
    # What keeps the parts from being merged, as an id, and the clock time when it was logged last.
    trouble: str = ""
    logged_at: float = float("-inf")
    # The vector of the claim that was logged last.
    claimed: str | None = None


class Merging:
    """The models in parts of one worker."""

    def __init__(self, services: Services, interval_s: float) -> None:
        self._services = services
        self._interval_s = interval_s
        self._wholes: dict[str, Whole] = {}

    def turn(self, partitions: Mapping[Partition, OwnedPartition], at_once: bool = False) -> None:
        """Merge what is due. Raises Fenced, PlacementChanged, ConfigurationError, and what the store raises."""
        for name in sorted(self._services.specs.in_parts):
            owned = _home(name, partitions.values())
            if owned is None:
                self._wholes.pop(name, None)
                continue
            whole = self._wholes.get(name)
            if whole is None or whole.owned is not owned:
                whole = self._wholes[name] = Whole(owned)
            began = self._services.clock()
            if not (at_once or began >= whole.look_from):
                continue
            whole.look_from = began + LOOK_S
            try:
                with self._services.metrics.loop.timed("merge"):
                    merged = self._merge(name, whole)
            except StoreLost:
                # The model was deleted, or the store lost everything. Only in the first case does this go on.
                if not owned.mark.lost_only_a_model():
                    raise
                whole.model = whole.merged = None
                self._wait(name, whole, "deleted", "it was deleted: its next event begins it again", PENDING_S)
                continue
            except (CorruptError, ParameterError) as error:
                self._wait(name, whole, str(error), str(error), AGAIN_S)
                continue
            ended = self._services.clock()
            if merged:
                whole.look_from = ended + max(self._interval_s, (ended - began) * (1 / SHARE - 1))

    # Step 1.
    def _claim(self, name: str, whole: Whole) -> MergedModel | None:
        """Become the owner of a whole model; None while a command changes its parts."""
        services, owned = self._services, whole.owned
        spec, store = services.specs.of(name), services.store
        begun = begin(name, spec, store, owned.partition, owned.placement, services.platform)
        self._check_written(begun or Written.STORED, name, owned)
        stored = store.peek(name)
        if stored is not None and (record := record_of(stored)) is not None and record.pending:
            # Its command must be able to finish, so nothing is claimed.
            why = f"{record.pending} changes its parts, or was interrupted: run it again"
            self._wait(name, whole, "pending", why, PENDING_S)
            return None
        epoch, checkpoint, fell_back = store.claim(name)
        record = record_of(checkpoint) if checkpoint else None
        if checkpoint is None or record is None:
            raise not_in_parts(name)
        if fell_back:
            log.error("checkpoint_damaged_previous_used", model=name, action="its parts are merged again")
        parts = record.vector.parts
        if checkpoint.home[0] != owned.partition.topic_id:
            # The log was made again, and offsets of the earlier one say nothing about this one.
            parts = tuple(msgspec.structs.replace(part, next=0) for part in parts)
        record = msgspec.structs.replace(record, vector=Vector(parts))
        model = resumed(name, spec, checkpoint, record, epoch)
        _, live = store.load(name) or (None, None)
        if live and live.vector and (fell_back or not parts):
            require_published(model, Vector.of_text(live.vector))
        claimed = str(record.vector), spec.catalogue.generation
        whole.unpublished = live is None or (live.vector, live.generation) != claimed
        vector = str(model.record.vector)
        # While a part is behind, the whole is claimed before each look, and nothing of it changes.
        if vector != whole.claimed:
            whole.claimed = vector
            log.info("parts_claimed", model=name, vector=vector, epoch=epoch)
        return model

    def _merge(self, name: str, whole: Whole) -> bool:
        """Steps 2 to 6; False if nothing was due."""
        services, owned = self._services, whole.owned
        if whole.model is None:
            whole.model = self._claim(name, whole)
        model = whole.model
        if model is None:
            return False
        # Step 2.
        positions = positions_of(name, services.store, owned, model.record.vector)
        if positions == whole.merged and not whole.unpublished:
            return False
        # Step 3.
        before = model.record.vector
        now = Vector.at(positions)
        if behind := now.behind(before):
            # It is claimed again then: a command may have deleted this part, or the whole.
            whole.model = None
            self._wait(name, whole, f"behind {behind[0]}", fell_behind(behind, now, before), AGAIN_S)
            return False
        # Step 4.
        model.go_to(owned.partition.topic_id, owned.placement, read_parts(name, services.store, positions))
        if behind := model.record.vector.behind(before):
            # A part changed between the look and the reading, or its newest checkpoint is damaged.
            whole.model = None
            self._wait(name, whole, f"behind {behind[0]}", fell_behind(behind, model.record.vector, before), AGAIN_S)
            return False
        # Step 5.
        checkpoint = model.checkpoint(services.platform)
        saved = services.store.save(checkpoint, model.epoch, placement=owned.placement)
        self._check_written(saved, name, owned)
        services.allowance.spend(len(checkpoint.state))
        # Step 6.
        snapshot = model.snapshot()
        withheld = model.judge.verdict(snapshot.metric, snapshot.version)
        published = services.store.publish(snapshot, model.epoch, withheld, owned.models.assumed)
        self._check_written(published, name, owned)
        model.published, whole.unpublished, whole.trouble = snapshot.version, False, ""
        whole.merged = dict(model.record.vector.positions)
        label = services.specs.of(name).label
        services.metrics.learning.count(label, model)
        services.metrics.output.count_decisions(label, model)
        services.metrics.output.count_published(label, model, WITHHELD if withheld else published.value)
        services.metrics.learning.describe(label, model)
        log.debug("parts_merged", model=name, version=snapshot.version, vector=snapshot.vector)
        return True

    def _check_written(self, answer: Written, name: str, owned: OwnedPartition) -> None:
        fenced = f"model {name!r}: another worker merges its parts now, or a command moved it; nothing was written"
        check_written(answer, owned.partition.topic_id, fenced)

    def _wait(self, name: str, whole: Whole, trouble: str, why: str, seconds: float) -> None:
        """Look again in so many seconds. ``why`` may hold numbers that grow; a new ``trouble`` has it logged."""
        now = self._services.clock()
        whole.look_from = now + seconds
        if trouble != whole.trouble or now - whole.logged_at >= REMIND_S:
            whole.trouble, whole.logged_at = trouble, now
            log.warning(
                "merge_waits", model=name, reason=why, action="its parts go on learning, nodes keep its version"
            )


def _home(name: str, partitions: Iterable[OwnedPartition]) -> OwnedPartition | None:
    """The home of a model, if it is among these partitions."""
    return next((owned for owned in partitions if owned.placement.home(name) == owned.partition.number), None)


def require_published(model: MergedModel, published: Vector) -> None:
    """Have a model merge nothing before its parts reach what is published already.

    The live snapshot may be later than the checkpoint, if only an older checkpoint could be read.
    """
    if model.record.vector.reaches(published):
        return
    vector = Vector.at({**model.record.vector.positions, **published.positions})
    model.record = msgspec.structs.replace(model.record, vector=vector)


def read_parts(name: str, store: Store, positions: Mapping[int, int]) -> Iterator[Checkpoint]:
    """The newest checkpoints of these parts, one after the other; raises CorruptError if one cannot be read."""
    for number in sorted(positions):
        part = part_name(name, number)
        checkpoint = store.peek(part)
        if checkpoint is None:
            raise CorruptError(
                f"model {part!r}: no checkpoint of it can be read. Restore the store from a backup. If there is none, "
                f"begin the model again from nothing: omdml models reset {name}"
            )
        yield checkpoint


def fell_behind(numbers: Sequence[int], now: Vector, before: Vector) -> str:
    """A sentence about parts that are not as far as they were."""
    number = numbers[0]
    offset, merged_offset = now.positions.get(number), before.positions[number]
    return (
        f"part {number} {'has learned nothing' if offset is None else f'is at offset {offset}'}, but had reached "
        f"offset {merged_offset} when it was last merged. It learns again what it lacks"
    )


def check_parts(specs: Specs, store: Store) -> None:
    """Raise ConfigurationError for a model that was learned in parts and is not to be any more, or the reverse."""
    names = store.models()
    bases = {part.model for name in names if (part := part_of(name))}
    for base in sorted(bases - specs.in_parts):
        if specs.find(base) is not None:
            raise was_in_parts(base)
    for name in sorted(specs.in_parts & set(names)):
        checkpoint = store.peek(name)
        if checkpoint is not None and record_of(checkpoint) is None:
            raise not_in_parts(name)


def not_in_parts(name: str) -> ConfigurationError:
    """The error for a model that is to be in parts and has an ordinary checkpoint."""
    return ConfigurationError(
        f"model {name!r} has parts = true, but was learned without parts. Leave parts out. Or move what it learned "
        f"into parts: stop the workers, leave parts out, run omdml models copy {name} NEW and omdml models delete "
        f"{name}, set parts = true, and run omdml models copy NEW {name}"
    )
