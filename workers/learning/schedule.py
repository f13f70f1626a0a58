"""When a worker publishes what its partitions learned, merges parts and saves: each when it is due."""

from __future__ import annotations

from heapq import merge
from itertools import repeat

import structlog

from omdml.errors import Fenced, SourceError, StoreError
from omdml.streams.placement import PlacementChanged
from omdml.workers.configuration.config import WorkerConfig
from omdml.workers.learning.interruptions import Rewind
from omdml.workers.learning.measures import Measures
from omdml.workers.learning.merging import Merging
from omdml.workers.learning.ownership import Ownership
from omdml.workers.learning.partition.owned_partition import OwnedPartition
from omdml.workers.learning.partition.portions import by_owner
from omdml.workers.learning.services import Services

# Seconds that saving may take when the worker is told to stop. What is not saved is read again.
FINISH_S = 5.0
# At most this many seconds pass inside poll, so that a signal is heard.
STOP_S = 0.1
# Shares of its time that a worker publishes for at most: while it keeps up, and while polls bring all that they may.
PUBLISHING, CATCHING_UP = 0.75, 0.05
# A poll that waited for this long and found nothing means that there is nothing.
DRAINED_S = 0.005

log = structlog.get_logger(__name__)


class Schedule:
    """Brings what was learned to the nodes and into the store, at the pace that is configured.

    Attributes
    ----------
    due_at
        Clock time from which the next round of publishing may begin, if anything is to be published.
    saved_at
        When the last round of saving ended.
    """

    def __init__(self, services: Services, config: WorkerConfig, owned: Ownership, measures: Measures) -> None:
        self.config = config
        self.merging = Merging(services, config.publish_interval_s)
        self._services = services
        self._owned, self._partitions = owned, owned.partitions
        self._measures = measures
        self.due_at = self.saved_at = float("-inf")
        # Clock time from which publishing again stays within its share of the time.
        self._publish_from = float("-inf")
        # Whether the last poll found nothing.
        self._drained = False
        # Whether the last round of saving stopped because its time was up.
        self._cut_short = False
        # Whether the last poll brought as many records as it may.
        self._behind = False

    def polled(self, count: int) -> None:
        """Note how many records a poll brought."""
        self._drained, self._behind = not count, count >= self.config.max_poll_records

    def patience(self) -> float:
        """Seconds that poll may wait: until the next publication is due, if one is."""
        now = self._services.clock()
        if not any(partition.models.unpublished for partition in self._partitions.values()):
            return STOP_S
        # A shorter wait could not tell that the log is empty. If it is, publishing need not rest: see publish_and_save.
        least = DRAINED_S if now < self._publish_from else 0.0
        return min(STOP_S, max(least, self.due_at - now))

    def publish_and_save(self) -> None:
        """Publish and save, each if it is due."""
        now = self._services.clock()
        rested = self._drained or now >= self._publish_from
        if rested and now >= self.due_at:
            self.publish(now)
        self.merging.turn(self._partitions)
        # Saving stops after half its interval, so that learning goes on. If there is nothing to learn, it goes on.
        at_once = self._drained and self._cut_short
        if at_once or now - self.saved_at >= self.config.checkpoint_interval_s:
            self.save(now)

    def publish(self, now: float) -> None:
        """Publish for at most about one interval between publications. Each partition gets an equal share of it."""
        due = [partition for partition in self._partitions.values() if partition.models.unpublished]
        # One round for each interval on average. If a round is late, the next one is not. If the distance from round to
        # round had to be an interval, each delay would keep all later events waiting. So two rounds may follow each
        # other at once.
        next_due_at = max(now, min(now, self.due_at) + self.config.publish_interval_s)
        for turn, partition in enumerate(due, start=1):
            partition.models.publish(now + turn * self.config.publish_interval_s / len(due))
            self.due_at = next_due_at
        end = self._services.clock()
        self._publish_from = end + (end - now) * (1 / (CATCHING_UP if self._behind else PUBLISHING) - 1)

    def save(self, now: float) -> None:
        """Save the oldest changes of all partitions, then move marks and commits as far as the saves allow.

        It saves at least one model. It stops if the byte rate is used up, or after half of the time between two rounds.
        """
        allowance, until = self._services.allowance, now + self.config.checkpoint_interval_s / 2
        allowance.grow(now)
        # Thousands of models may be unsaved, and there may be time to save only a few of them.
        of_each = [zip(list(owned.models.unsaved.values()), repeat(owned)) for owned in self._partitions.values()]
        changed = merge(*of_each, key=lambda pair: pair[0].changed_at)
        self._cut_short = False
        for owned, models in by_owner(changed, lambda: allowance.left):
            owned.models.keep(models)
            if allowance.left <= 0 or self._services.clock() >= until:
                # Bytes are allowed again only as time goes by.
                self._cut_short = allowance.left > 0
                break
        for owned in self._partitions.values():
            owned.saving.advance(self._owned.untaken(owned.partition))
        self.saved_at = self._services.clock()
        self._measures.set_unsaved(self._partitions)
        for owned in self._partitions.values():
            owned.claiming.try_waiting()

    def finish(self) -> None:
        """Publish and save what is learned. Events that were not taken stay in the log."""
        until = self._services.clock() + FINISH_S
        saved = [self._save_at_the_end(partition, until) for partition in self._partitions.values()]
        if not all(saved):
            return
        self._merge_at_the_end()
        if unsaved := sum(len(partition.models.unsaved) for partition in self._partitions.values()):
            log.warning("stopped_partly_unsaved", models=unsaved, action="the next start reads their events again")
            return
        log.info("drained_and_saved", partitions=len(self._partitions))

    def _merge_at_the_end(self) -> None:
        """Publish what the parts have saved by now. If that fails, the next owner publishes it."""
        try:
            self.merging.turn(self._partitions, at_once=True)
        except (Fenced, PlacementChanged, StoreError) as error:
            log.warning("stopped_unmerged", reason=str(error), action="the next owner of the model publishes its parts")

    def _save_at_the_end(self, partition: OwnedPartition, until: float) -> bool:
        """Save one partition at the end; False if it must be read again. The others are saved all the same."""
        try:
            # What was polled meanwhile was passed over, so positions say nothing.
            if self._owned.doubt:
                raise self._owned.doubt
            partition.saving.save(self._owned.untaken(partition.partition), until=until)
            self._owned.note_uncommitted(partition)
        except Rewind as rewind:
            log.error(rewind.why, reason=str(rewind), action="the next start reads again what was not saved")
            return False
        except (Fenced, PlacementChanged) as refused:
            # Nothing is lost, so this is no failure: whoever owns the model next reads these events from the log.
            log.warning("stopped_unsaved", reason=str(refused), action="its next owner reads these events again")
            return False
        except (StoreError, SourceError) as error:
            raise type(error)(
                f"the worker stopped before everything was saved, and the next start reads the rest again: {error}"
            ) from error
        return True
