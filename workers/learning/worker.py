"""The loop of a worker: it polls, learns, publishes and saves, and decides which errors it can wait for."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import structlog

from omdml.errors import Fenced, GapError, OmdmlError, SourceError, SourceRefused, StoreError, StoreLost, StoreRefused
from omdml.streams.protocols.log import Partition, Record
from omdml.workers.configuration.config import WorkerConfig
from omdml.workers.events.decoding import by_partition, piece_length
from omdml.workers.learning.interruptions import Rewind, StoreChanged
from omdml.workers.learning.log_placement import LogPlacement
from omdml.workers.learning.measures import Measures
from omdml.workers.learning.merging import check_parts
from omdml.workers.learning.ownership import Ownership
from omdml.workers.learning.partition.owned_partition import OwnedPartition
from omdml.workers.learning.schedule import Schedule
from omdml.workers.learning.services import Services
from omdml.workers.model.new_model_limits import MAX_NEW_A_TURN
from omdml.workers.telemetry.condition import Condition
from omdml.workers.telemetry.single_models import MakeValues

log = structlog.get_logger(__name__)
# Seconds between two tries of a write that the store or the dead letters refused.
RETRY_S = 0.5
# Seconds to wait while no more models may begin.
PAUSE_S = 0.005
# Seconds between two measurements of how far behind the log's end the partitions are.
MEASURE_S = 1.0


class LearnerWorker:
    """Takes events from a source, learns them, publishes snapshots and saves checkpoints, each at its own pace.

    Parameters
    ----------
    services
        What partitions work with.
    config
        How often to publish and to save. There is a round of publishing for each ``publish_interval_s`` on average, and
        one at once if no events wait. While events wait, at most three quarters of the time are spent on publishing.
        While every poll brings as many records as it may, it is at most a twentieth.
    hand_over_s
        Seconds that saving may take if partitions go to another worker, which does not wait for ever.
    """

    def __init__(self, services: Services, config: WorkerConfig, hand_over_s: float = math.inf) -> None:
        self.services = services
        self._measures = Measures(services)
        self._placement = LogPlacement(services)
        self._owned = Ownership(services, self._placement, self._measures, hand_over_s)
        self.schedule = Schedule(services, config, self._owned, self._measures)
        self._stopping = False
        self._trouble = ""
        # Clock time since when the store, or the dead letters, cannot be reached.
        self._outage_since: float | None = None
        # A gap that was accepted, and that the worker has not passed yet.
        self._gap: GapError | None = None
        self._measured_at = float("-inf")
        self._joined = False

    @property
    def partitions(self) -> dict[Partition, OwnedPartition]:
        """The partitions that this worker owns now."""
        return self._owned.partitions

    def stop(self) -> None:
        """End the loop after what is at hand; safe in a signal handler."""
        self._stopping = True

    def condition(self) -> Condition:
        """How this worker is, for probes; asked from any thread."""
        return self._measures.condition(self._stopping, len(self.partitions))

    def single_models(self) -> Mapping[str, MakeValues]:
        """The models in memory, and how to measure each. Any thread may call this."""
        return self._measures.single_models(list(self.partitions.values()))

    def run(self) -> None:
        """Work until :meth:`stop`, then publish, save and leave.

        Raises GapError, SourceError, StoreLost, StoreRefused, Fenced, ConfigurationError if an operator must decide.
        """
        try:
            while not self._stopping:
                self.step()
            self.services.metrics.loop.draining.set(1)
            self.schedule.finish()
        finally:
            # After an error, perhaps amid a take, leaving must save nothing.
            self._stopping = self._owned.leaving = True
            self._close()

    def _close(self) -> None:
        self.services.refusals.tell(at_once=True)
        try:
            self.services.source.close(self._owned.uncommitted)
        finally:
            try:
                self.services.letters.close()
            except SourceError as error:
                # No mark has passed these letters, so the next start writes them again.
                log.warning("letters_not_closed", reason=str(error), action="the next start writes them again")

    def step(self) -> None:
        """Make one turn of the loop: poll, take, publish, save, each if it is time."""
        try:
            self._measures.begin_turn()
            self._measure()
            if not self._joined:
                self._join()
            if self._owned.doubt:
                self._owned.start_over(self._fetch)
            if self._gap:
                self._pass_gap(self._gap)
            if not self._owned.polled:
                self._owned.polled = by_partition(self._fetch())
            self._owned.introduce()
            self._take()
            self.schedule.publish_and_save()
            self._trouble = ""
            self._measures.set_outage(None)
            if self._outage_since is not None:
                log.info("learning_goes_on", after_s=round(self.services.clock() - self._outage_since, 1))
                self._outage_since = None
        except Rewind as rewind:
            # Events were passed over that this model must learn. Read them again, and drop what was polled after them.
            self._owned.polled.pop(rewind.partition, None)
            self.services.source.seek(rewind.partition, rewind.offset)
            log.error(rewind.why, reason=str(rewind))
        except (Fenced, StoreChanged) as doubt:
            # Another worker may own these models, or the store forgot something. The next turn begins again from what
            # is stored. If that is refused as well, beginning again does not help, and the worker ends.
            if self._owned.doubt:
                raise
            self._owned.note(doubt)
        except GapError as gap:
            # The log lacks events that were not read yet. Only an operator can accept that. If the same gap comes
            # again, going on behind it did not help.
            if not self.services.accept_gap or str(gap) == self._trouble:
                raise
            self._gap = gap
        except (StoreLost, StoreRefused, SourceRefused):
            # Waiting does not help against these.
            raise
        except (StoreError, SourceError) as error:
            self._pause(error)

    def _join(self) -> None:
        """Ask for partitions among those that models live on. Others that the topic has are read by nobody."""
        source = self.services.source
        check_parts(self.services.specs, self.services.store)
        source.subscribe(self._owned, self._placement.read(source.topic_id).count)
        self._joined = True

    def _pass_gap(self, gap: GapError) -> None:
        """Go on after a gap that is accepted. If that fails for now, the next turn tries it again."""
        self._trouble = str(gap)
        partition = None if gap.partition is None else Partition(*gap.partition)
        if gap.resume is None:
            self._owned.from_beginning = True
        elif partition in self.partitions:
            # Any other partition belongs to another worker now, and that worker's own client reports the gap.
            self.partitions[partition].go_on_at(gap.resume, gap.cut)
            placement = self._placement.read(partition.topic_id)
            for owned in self.partitions.values():
                owned.models.placement = placement
            self.services.source.seek(partition, gap.resume)
        self._gap = None
        self.services.metrics.loop.gaps.inc()
        log.warning("gap_accepted", reason=self._trouble, hint="start without --accept-gap from now on")

    def _pause(self, error: OmdmlError) -> None:
        """Wait a moment for the store or the dead letters. What was polled and learned stays in memory."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.warning("learning_waits", reason=self._trouble, action="trying again; nothing is lost meanwhile")
        if self._outage_since is None:
            self._outage_since = self.services.clock()
        self._measures.set_outage(error)
        time.sleep(RETRY_S)

    def _fetch(self) -> list[Record]:
        begin = time.perf_counter()
        records = self.services.source.poll(self.schedule.config.max_poll_records, self.schedule.patience())
        self.schedule.polled(len(records))
        self.services.metrics.loop.spent("fetch" if records else "idle", time.perf_counter() - begin)
        return records

    def _measure(self) -> None:
        """Say how far behind the log's end each partition is, whether or not anything can be taken or saved."""
        now = self.services.clock()
        if now - self._measured_at < MEASURE_S:
            return
        self._measured_at = now
        self.services.refusals.tell()
        self._measures.set_backlog(self._owned.polled)
        self._measures.set_unsaved(self.partitions)
        self._placement.look_for_added()

    def _take(self) -> None:
        """Take what was polled, piece by piece, until publications are due; the rest is for the next turn."""
        until = self.services.clock() + self.schedule.config.publish_interval_s
        polled = self._owned.polled
        for partition in list(polled):
            while polled[partition] and partition in self.partitions:
                before = polled[partition]
                polled[partition] = self._take_from(self.partitions[partition], before)
                if len(polled[partition]) == len(before):
                    # As many models as may begin in a second have begun.
                    time.sleep(PAUSE_S)
                    break
                if self._stopping or self.services.clock() >= until:
                    break
            if partition not in self.partitions or not polled[partition]:
                del polled[partition]
            if self._stopping or self.services.clock() >= until:
                break

    def _take_from(self, partition: OwnedPartition, records: list[Record]) -> list[Record]:
        """Take the next piece of these records; returns what is left."""
        # Take no more than this turn can begin: the rest would be decoded and looked up in the store a second time.
        count = min(piece_length(records), MAX_NEW_A_TURN if partition.crowded else len(records))
        try:
            remaining = partition.take(records[:count])
            if len(remaining) < count and (logged_at := records[count - len(remaining) - 1].timestamp) is not None:
                self.services.metrics.intake.set_newest_taken(partition.partition, logged_at)
            return [*remaining, *records[count:]]
        except SourceError:
            # Dead letters cannot be written, so nothing can be saved. What was learned can still go live.
            self.schedule.publish(self.services.clock())
            raise

    def __repr__(self) -> str:
        state: dict[str, Any] = {
            str(partition): list(owned.models.loaded) for partition, owned in self.partitions.items()
        }
        return f"LearnerWorker({state})"
