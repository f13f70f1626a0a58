"""The worker's view of where the models of its log live: the first worker records it, later ones read the record."""

from __future__ import annotations

from contextlib import suppress

import structlog

from omdml.errors import ConfigurationError, StoreError
from omdml.streams.placement import Placement, PlacementChanged
from omdml.workers.learning.services import Services

log = structlog.get_logger(__name__)


class LogPlacement:
    """Reads the placement of a log out of the store, and notices partitions that were added since."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._last: Placement | None = None
        self._logged_added = False

    def read(self, topic_id: str) -> Placement:
        """The placement of a log's models, which the first worker records.

        Raises ConfigurationError, StoreError, and PlacementChanged if this worker joined its group under another count,
        because the group still divides as many partitions as there were then.
        """
        store, source = self.services.store, self.services.source
        placement = store.placement(topic_id)
        if placement is None:
            placement = Placement.first(source.partitioner, source.partitions)
            if not store.place(topic_id, None, placement):
                raise StoreError(
                    f"log {topic_id}: another worker has just recorded where the models live. This worker reads the "
                    "record when it tries again, or is started again"
                )
            log.info("models_placed", log=topic_id, partitioner=placement.partitioner, partitions=placement.count)
        else:
            # A store that was emptied has no record; its claims say that it lost the models.
            self._require_same_count(placement)
        if placement.partitioner != source.partitioner:
            raise ConfigurationError(
                f"log.partitioner is {source.partitioner!r}, but the models of log {topic_id} live where "
                f"{placement.partitioner!r} puts them. Set it back, or learn them again: omdml topics rewind"
            )
        self._note_group(topic_id)
        self._last = placement
        return placement

    def _note_group(self, topic_id: str) -> None:
        """Record the group that reads the log, for commands that must notice its members."""
        store, group = self.services.store, self.services.group
        if group and (before := store.group(topic_id)) != group:
            store.note_group(topic_id, group)
            if before:
                hint = "if nobody renamed log.group, correct it: workers of two groups keep each other from saving"
                log.warning("group_changed", log=topic_id, before=before, now=group, hint=hint)

    def look_for_added(self) -> None:
        """Log a warning if the log has partitions that no models live on.

        Raises PlacementChanged if models live there now: a worker that has nothing to save does not hear of it
        otherwise.
        """
        count = self._last.count if self._last else self.services.source.partitions
        unread = self.services.source.partitions - count
        self.services.metrics.intake.unread.set(unread)
        self.services.metrics.intake.homes.set(count)
        placement = None
        if unread:
            # If the store is away, this is asked again a second later.
            with suppress(StoreError):
                placement = self.services.store.placement(self.services.source.topic_id)
        if placement:
            self._require_same_count(placement)
        if unread and not self._logged_added:
            log.warning("partitions_not_read", partitions=unread, reason=added_partitions(count, unread))
        self._logged_added = unread > 0

    def _require_same_count(self, placement: Placement) -> None:
        if self._last and placement.count != self._last.count:
            raise PlacementChanged(self.services.source.topic_id)


def added_partitions(count: int, unread: int) -> str:
    """A message about partitions that no models live on, with what to do."""
    added = f"models live on partitions 0 to {count - 1}, the others were added later and are not read"
    if unread % count:
        return f"{added}; {count + unread} is not a multiple of {count}: omdml topics status says what to do"
    return f"{added}: stop the senders and the workers, then run omdml topics rehome"
