"""Models in parts, changed as a whole: begun again, deleted, begun with what another model learned.

The record in the whole model's checkpoint says first what is going to be done (``pending``). From then on nothing is
merged, so nodes never see a part that was changed beside one that was not. After a crash the same command, run again,
finishes the work.
"""

from __future__ import annotations

from typing import cast

import msgspec

from omdml.batch.sums import emptied
from omdml.errors import ConfigurationError, CorruptError, StoreError
from omdml.learners import DCA
from omdml.snapshot import Checkpoint
from omdml.streams.part_names import part_name, part_of
from omdml.streams.placement import Placement, PlacementChanged
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Store, Written
from omdml.workers.configuration.specs import Spec
from omdml.workers.model.judging.guard import Guard
from omdml.workers.model.owned_model import OwnedModel
from omdml.workers.model.parts.merged_model import MergedModel, known_start
from omdml.workers.model.parts.vector import PartsRecord, Vector, offset_in, record_of, with_record
from omdml.workers.operate.models import ATTEMPTS, busy, readable_claim, require


def parts_in(store: Store, name: str) -> list[str]:
    """The parts of a model that a store knows, in the order of their numbers."""
    parts = [(part.number, model) for model in store.models() if (part := part_of(model)) and part.model == name]
    return [model for _, model in sorted(parts)]


def require_whole(name: str, verb: str) -> None:
    """Raise ConfigurationError for the name of a part: parts are changed together."""
    if part := part_of(name):
        raise ConfigurationError(f"{name!r} is a part of model {part.model!r}: run omdml models {verb} {part.model}")


def reset(store: Store, spec: Spec, name: str, platform: str) -> int:
    """Begin every part of a model again, at its start and at its current position; returns how many parts there are.

    1. pending  Save the whole model at version 0, with a record that says what is pending, and publish it. Its worker
                is fenced.
    2. parts    Save each part at its start; its position stays. A part that cannot be read is deleted, and begins again
                with the events that wait for it.
    3. ready    Replace the record: nothing is pending now. It has the positions of the parts that were saved.

    If neither the whole nor any part has a checkpoint with a position, the model is deleted: a worker begins it again.
    Raises StoreError if there is nothing to reset, Fenced if workers keep taking models back.
    """
    require(store, name)
    checkpoint, parts = store.peek(name), parts_in(store, name)
    positions = store.positions(parts)
    if checkpoint is None and not positions:
        delete(store, name)
        return len(parts)
    if checkpoint is not None and record_of(checkpoint) is None:
        raise StoreError(f"model {name!r} was learned without parts: leave parts out of its configuration to reset it")
    home = None
    topic_id = checkpoint.home[0] if checkpoint else next(iter(positions.values())).home.topic_id
    if checkpoint is None:
        # The whole model's checkpoint cannot be read, so nothing says what was merged last. The parts that can be read
        # say how all parts began.
        placement = store.placement(topic_id)
        home = Partition(topic_id, placement.home(name) if placement else 0)
        start = cast(DCA, known_start(parts, spec, store) or spec.fresh())
        store.delete(name)
    else:
        start = emptied(cast(DCA, spec.resumed(checkpoint)))
    pending = PartsRecord(pending=f"omdml models reset {name}")
    note = f"was at version {checkpoint.version}" if checkpoint else "its checkpoint could not be read"
    _save_whole(store, spec, name, start, pending, platform, note, home)
    begun = [model for part in parts if (model := _begin_again(store, spec, part, start, platform))]
    # A part that was deleted has no position, or nothing would be merged before its next event.
    offsets = {model.home.number: offset_in(topic_id, model.home, model.next) for model in begun if model.home}
    _save_whole(store, spec, name, start, PartsRecord(Vector.at(offsets)), platform)
    return len(parts)


def delete(store: Store, name: str) -> None:
    """Delete a model with all of its parts, the whole last. Raises Fenced if a worker keeps taking it back."""
    for _ in range(ATTEMPTS):
        try:
            epoch, checkpoint, _ = store.claim(name)
        except CorruptError:
            break
        if checkpoint is None or (record := record_of(checkpoint)) is None:
            break
        pending = msgspec.structs.replace(record, pending=f"omdml models delete {name}")
        if store.save(with_record(checkpoint, pending), epoch) is not Written.FENCED:
            break
    else:
        raise busy(name)
    for part in parts_in(store, name):
        store.delete(part)
    store.delete(name)


def begin_with(
    learned: Checkpoint, store: Store, name: str, spec: Spec, topic_id: str, placement: Placement, platform: str
) -> str:
    """Have a model in parts begin with what another one learned; returns the name of the part that gets it.

    All parts begin alike, and that is written down first. The caller saves the part: it is the one of the home
    partition. Raises ConfigurationError if the settings do not fit, StoreError if the model has parts already.
    """
    if parts := parts_in(store, name):
        raise StoreError(f"model {name!r} has parts in {store} ({parts[0]}): first run omdml models delete {name}")
    start = emptied(cast(DCA, spec.resumed(learned)))
    _save_whole(store, spec, name, start, PartsRecord(), platform, home=Partition(topic_id, placement.home(name)))
    return part_name(name, placement.home(name))


def _save_whole(
    store: Store, spec: Spec, name: str, start: DCA, record: PartsRecord, platform: str, note: str = "",
    home: Partition | None = None,
) -> None:  # fmt: skip
    for _ in range(ATTEMPTS):
        epoch, checkpoint, _ = store.claim(name)
        model = MergedModel(name, start, spec, epoch, Guard(spec.guard, start.metric), record)
        model.home = Partition(*checkpoint.home) if checkpoint else home
        # The part of the home may have been deleted, and what is merged next must not look like a late write.
        model.next = record.vector.positions.get(model.home.number, 0) if model.home else 0
        saved = store.save(model.checkpoint(platform), epoch, back=True)
        if saved is Written.MOVED:
            raise PlacementChanged(model.home.topic_id if model.home else "")
        if saved is Written.FENCED:
            continue
        if note:
            if store.publish(model.snapshot(), epoch) is Written.FENCED:
                continue
            store.note(name, epoch, "reset", note)
        return
    raise busy(name)


def _begin_again(store: Store, spec: Spec, part: str, start: DCA, platform: str) -> OwnedModel | None:
    """Save a part at its start; returns it as it was saved, None if it has no checkpoint any more."""
    for _ in range(ATTEMPTS):
        claim = readable_claim(part, store)
        if claim is None:
            store.delete(part)
            return None
        epoch, checkpoint = claim
        if checkpoint is None:
            return None
        model = OwnedModel(part, emptied(start), spec.catalogue, epoch, spec.digest, Guard(spec.guard, start.metric))
        model.home, model.next = Partition(*checkpoint.home), checkpoint.next
        if store.save(model.checkpoint(platform), epoch) is not Written.FENCED:
            return model
    raise busy(part)
