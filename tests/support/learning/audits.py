"""The audit of a world in memory, as ``omdml doctor --audit`` makes it of an installation."""

from __future__ import annotations

from omdml.streams.placement import Placement
from omdml.workers.operate import audit
from omdml.workers.operate.audit import Audit, LetterPositions


def audited(world, letters=None):
    """The audit of a world, and what it reports."""
    letters = letters or LetterPositions()
    for partition in world.graves.partitions:
        letters.read(world.graves.read(partition, world.graves.start(partition), 10_000))
    models = list(audit.sums(world.store))
    marks = world.store.marks(world.log.partitions)
    placement = world.store.placement(world.log.topic_id) or Placement.first("murmur2", len(world.log.partitions))
    result = Audit(marks, models, letters, placement)
    begins = {partition: world.log.start(partition) for partition in world.log.partitions}
    for partition, begin in begins.items():
        if records := world.log.read(partition, begin, 10_000):
            result.read(records)
    return result, audit.report(result, begins)
