"""One turn of a partition: records sorted by model, and as many new models as may begin."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from omdml.errors import FeedbackError
from omdml.feedback import kind_of
from omdml.streams.part_names import part_name, part_of
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.protocols.store import ModelPosition
from omdml.streams.resent_events import position_of_copy
from omdml.workers.configuration.model_names import can_be_kept
from omdml.workers.configuration.specs import Specs
from omdml.workers.events.decoding import Batch, Refusal, sort_out, wrong_partition
from omdml.workers.learning.services import Services
from omdml.workers.model.new_model_limits import too_many_models


class Turn(NamedTuple):
    """Records of one partition that are taken together.

    ``left`` are those for a later turn, because too many new models would begin. ``refused`` has what cannot be
    learned, under None if its model is not known. ``positions`` has how far the store holds the models that are not in
    memory; ``only_refused`` names those of them whose events were all refused. ``crowded``: at least half of the
    records begin a model.
    """

    records: Sequence[Record]
    left: list[Record]
    batches: dict[str, Batch]
    refused: dict[str | None, list[Refusal]]
    positions: dict[str, ModelPosition]
    only_refused: list[str]
    crowded: bool


def begin_turn(
    records: list[Record],
    partition: Partition,
    placement: Placement,
    loaded: Collection[str],
    waits: Callable[[str], bool],
    services: Services,
) -> Turn:
    """Sort records out, all of them from before the last rehome or all from after it, and let newcomers begin.

    This asks the store which models it has, and uses up some of the new models that may begin in a second.
    ``loaded`` are the models in memory; ``waits`` tells whether a model waits for its checkpoint to be fixed.
    Raises StoreError if the store is out of reach.
    """
    with services.metrics.loop.timed("decode"):
        batches, refused = _by_model(records, partition, placement, services)
    without_events = [
        name
        for name in refused
        if name
        and name not in batches
        and name not in loaded
        and can_be_kept(name)
        and placement.home(name) == partition.number
    ]
    not_loaded = [name for name in batches if name not in loaded]
    positions = services.store.positions([*without_events, *not_loaded])
    new = [name for name in batches if not (name in loaded or name in positions or waits(name))]
    count, over_limit, end = _let_newcomers_begin(new, batches, services)
    taken, left = records, []
    if end < math.inf:
        taken = [record for record in records if record.offset < end]
        left = [record for record in records if record.offset >= end]
        batches = {name: remaining for name, batch in batches.items() if (remaining := batch.before(end)).records}
        for name, refusals in refused.items():
            refused[name] = [refusal for refusal in refusals if refusal.record.offset < end]
    for name in batches.keys() & over_limit:
        error = too_many_models(name, services.specs.of(name))
        refused.setdefault(name, []).extend(Refusal(record, error, name) for record in batches.pop(name).records)
    only_refused = [name for name in without_events if name in positions and refused[name]]
    return Turn(taken, left, batches, refused, positions, only_refused, crowded=2 * count >= len(taken))


def _by_model(
    records: list[Record], partition: Partition, placement: Placement, services: Services
) -> tuple[dict[str, Batch], dict[str | None, list[Refusal]]]:
    """Decoded records and refused ones of each model, events of a model in parts under the name of their part."""
    batches, refused = sort_out(records, partial(kinds_learned_here, partition, placement, services.specs))
    for name in [name for name in refused if name and part_of(name)]:
        # Senders may not name a part: their events must not reach it.
        refused.setdefault(None, []).extend(refused.pop(name))
    for name in services.specs.in_parts:
        move_to_part(name, partition, batches, refused, services)
    if records[0].offset < placement.since(partition.number):
        # Everything below a rehome was learned, or became a letter, before the models moved.
        for refusals in refused.values():
            refusals[:] = [refusal for refusal in refusals if refusal.error.reason != "wrong_partition"]
    return batches, refused


def _let_newcomers_begin(
    new: list[str], batches: Mapping[str, Batch], services: Services
) -> tuple[int, list[str], float]:
    """Decide which of these models, none of which has a checkpoint, may begin, and count them.

    Returns how many begin in this turn, which ones must not begin at all, and the offset where the turn ends because
    more would begin.
    """
    if not new:
        return 0, [], math.inf
    newcomers = services.newcomers
    begin, over_limit = newcomers.admit(new, services.specs, services.store, services.clock)
    room = newcomers.room(services.clock())
    end = batches[begin[room]].records[0].offset if len(begin) > room else math.inf
    count = min(room, len(begin))
    newcomers.began(count)
    return count, over_limit, end


def kinds_learned_here(partition: Partition, placement: Placement, specs: Specs, name: str) -> frozenset[str] | None:
    """The kinds of comparison that a model learns from here; raises FeedbackError if it lives elsewhere."""
    kinds = specs.accepts(name)
    if kinds is not None and placement.home(name) != partition.number and name not in specs.in_parts:
        raise wrong_partition(name, partition, placement)
    return kinds


def move_to_part(
    name: str,
    partition: Partition,
    batches: dict[str, Batch],
    refused: dict[str | None, list[Refusal]],
    services: Services,
) -> None:
    """Give events of a model in parts to the part of this partition, in place.

    A copy of an event of another partition is refused: only the part there knows whether it learned that event.
    """
    part = part_name(name, partition.number)
    if name in refused:
        refused[part] = refused.pop(name)
    if name not in batches:
        return
    batch = batches.pop(name)
    if batch.resent:
        secret = services.store.secret()
        originals = {record.offset: position_of_copy(record, secret) for record in batch.records}
        foreign = {offset: place for offset, place in originals.items() if place and place[0] != partition}
        for record, event in zip(batch.records, batch.events, strict=True):
            if record.offset in foreign:
                error = copy_on_other_partition(name, *foreign[record.offset])
                refused.setdefault(part, []).append(Refusal(record, error, name, kind_of(event)))
        batch = batch.only([record.offset not in foreign for record in batch.records])
    if batch.records:
        batches[part] = batch


def copy_on_other_partition(name: str, partition: Partition, offset: int) -> FeedbackError:
    """The error for a copy of an event that lies on another partition than the copy."""
    return FeedbackError(
        f"each event of model {name!r} is learned on its own partition, and this is a copy of the one at "
        f"{partition}/{offset}: it was sent again before the model was learned in parts. If that event is a dead "
        "letter, send that letter again (omdml letters resend). Then dismiss this one",
        reason="wrong_partition",
    )
