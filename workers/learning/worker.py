"""LearnerWorker: the loop over partitions and clocks."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import structlog

from omdml.errors import (
    Fenced,
    GapError,
    OmdmlError,
    SourceError,
    SourceRefused,
    StoreError,
    StoreLost,
    StoreRefused,
)
from omdml.streams.placement import PlacementChanged
from omdml.streams.protocols.log import Partition, Record
from omdml.workers.configuration.config import WorkerConfig
from omdml.workers.events.decoding import by_partition, piece
from omdml.workers.learning.interruptions import Rewind, StoreChanged
from omdml.workers.learning.log_placement import LogPlacement
from omdml.workers.learning.measures import Measures
from omdml.workers.learning.merging import Merging, check_parts
from omdml.workers.learning.ownership import Ownership
from omdml.workers.learning.partition.owned_partition import OwnedPartition
from omdml.workers.learning.partition.portions import by_owner
from omdml.workers.learning.services import Services
from omdml.workers.model.newcomers import A_TURN
from omdml.workers.telemetry.condition import Condition
from omdml.workers.telemetry.single_models import Told

log = structlog.get_logger(__name__)
# Seconds between two tries of a write that the store or the dead letters refused.
RETRY_S = 0.5
# Seconds to wait while no more models may begin.
PAUSE_S = 0.005
# What saving may take when the worker is told to stop. What is not saved is read again.
FINISH_S = 5.0
# At most so many seconds pass inside poll, so that a signal is heard.
STOP_S = 0.1
# Shares of its time that a worker publishes for at most: while it keeps up, and while polls bring all that they may.
PUBLISHING, CATCHING_UP = 0.75, 0.25
# A poll that waited for this long and found nothing means that there is nothing.
DRAINED_S = 0.005
# Between two looks at how far behind the log's end the partitions are.
MEASURE_S = 1.0


class LearnerWorker:
    """Takes events from a source, learns them, publishes snapshots and saves checkpoints, each at its own pace.

    Parameters
    ----------
    services
        What partitions work with.
    config
        Publish within ``publish_interval_s``, at once when idle; save every ``checkpoint_interval_s``. While events
        wait, publishing takes at most three quarters of the time: what is slow to publish goes live less often.
    accept_gap
        Go on if the log no longer holds the events at a position; else that ends the worker.
    hand_over_s
        Seconds that saving may take where partitions go to another worker, which does not wait for ever.
    """

    def __init__(
        self, services: Services, config: WorkerConfig, accept_gap: bool = False, hand_over_s: float = math.inf
    ) -> None:
        self.services = services
        self.config = config
        self.accept_gap = accept_gap
        self._measures = Measures(services)
        self._placement = LogPlacement(services)
        self._owned = Ownership(services, self._placement, self._measures, hand_over_s)
        self._merging = Merging(services, config.publish_interval_s)
        self._stopping = False
        self._trouble = ""
        # A gap that was accepted, and that the worker has not passed yet.
        self._gap: GapError | None = None
        self._published_at = self._saved_at = self._measured_at = float("-inf")
        # When the last publication is a small enough share of the time since it began.
        self._rested_at = float("-inf")
        # Whether the last poll found nothing.
        self._drained = False
        # Whether the last round of saving stopped because its time was up.
        self._cut_short = False
        # Whether the last poll brought as many records as it may.
        self._behind = False
        self._joined = False

    @property
    def partitions(self) -> dict[Partition, OwnedPartition]:
        """The partitions that this worker owns now."""
        return self._owned.partitions

    def stop(self) -> None:
        """End the loop after what is at hand; safe in a signal handler."""
        self._stopping = self._owned.leaving = True

    def condition(self) -> Condition:
        """How this worker is, for probes; asked from any thread."""
        return self._measures.condition(self._stopping, len(self.partitions))

    def single_models(self) -> Mapping[str, Told]:
        """The models in memory, and how to measure each. Any thread may call this."""
        return self._measures.single_models(list(self.partitions.values()))

    def run(self) -> None:
        """Work until :meth:`stop`, then publish, save and leave.

        Raises GapError, SourceError, StoreLost, StoreRefused, Fenced, ConfigurationError if an operator must decide.
        """
        try:
            while not self._stopping:
                self.step()
            self.services.metrics.draining.set(1)
            self._finish()
        finally:
            # After an error, perhaps amid a take, leaving must save nothing.
            self._stopping = self._owned.leaving = True
            self._close()

    def _close(self) -> None:
        self.services.refusals.tell(at_once=True)
        try:
            self.services.source.close()
        finally:
            try:
                self.services.letters.close()
            except SourceError as error:
                # No mark has passed these letters, so the next start writes them again.
                log.warning("letters_not_closed", reason=str(error), action="the next start writes them again")

    def step(self) -> None:
        """One turn: poll, take, publish, save, each if it is time."""
        try:
            self._measures.turn()
            self._measure()
            if not self._joined:
                self._join()
            if self._owned.doubt:
                self._start_over(self._owned.doubt)
            if self._gap:
                self._go_on(self._gap)
            if not self._owned.waiting:
                self._owned.waiting = by_partition(self._fetch())
            self._owned.introduce()
            self._take()
            self._tick()
            self._trouble = ""
            self._measures.tell_waiting(None)
        except Rewind as rewind:
            self._owned.waiting.pop(rewind.partition, None)
            self.services.source.seek(rewind.partition, rewind.offset)
            log.error(rewind.why, reason=str(rewind))
        except (Fenced, StoreChanged) as doubt:
            if self._owned.doubt:
                raise
            self._note(doubt)
        except GapError as gap:
            if not self.accept_gap or str(gap) == self._trouble:
                raise
            self._gap = gap
        except (StoreLost, StoreRefused, SourceRefused):
            raise
        except (StoreError, SourceError) as error:
            self._pause(error)

    def _join(self) -> None:
        """Ask for partitions among those that models live on. Others that the topic has are read by nobody."""
        source = self.services.source
        check_parts(self.services.specs, self.services.store)
        source.subscribe(self._owned, self._placement.read(source.topic_id).count)
        self._joined = True

    def _go_on(self, gap: GapError) -> None:
        """Go on after a gap that is accepted. What keeps it from that for now is met by the next turn again."""
        self._trouble = str(gap)
        partition = None if gap.partition is None else Partition(*gap.partition)
        if gap.resume is None:
            self._owned.from_beginning = True
        elif partition in self.partitions:
            # A partition that is not there is another worker's now, whose own client tells it.
            self.partitions[partition].go_on_at(gap.resume, gap.cut)
            placement = self._placement.read(partition.topic_id)
            for owned in self.partitions.values():
                owned.models.placement = placement
            self.services.source.seek(partition, gap.resume)
        self._gap = None
        self.services.metrics.gaps.inc()
        log.warning("gap_accepted", reason=self._trouble, hint="start without --accept-gap from now on")

    def _pause(self, error: OmdmlError) -> None:
        """What is polled and learned stays in memory until the store, or the dead letters, can be reached again."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.warning("learning_waits", reason=self._trouble, action="trying again; nothing is lost meanwhile")
        self._measures.tell_waiting(error)
        time.sleep(RETRY_S)

    def _fetch(self) -> list[Record]:
        begin = time.perf_counter()
        records = self.services.source.poll(self.config.max_poll_records, self._patience())
        self._drained, self._behind = not records, len(records) >= self.config.max_poll_records
        self.services.metrics.spent("fetch" if records else "idle", time.perf_counter() - begin)
        return records

    def _measure(self) -> None:
        """Say how far behind the log's end each partition is, whether or not anything can be taken or saved."""
        now = self.services.clock()
        if now - self._measured_at < MEASURE_S:
            return
        self._measured_at = now
        self.services.refusals.tell()
        self._measures.tell_behind(self._owned.waiting)
        self._measures.tell_unsaved(self.partitions)
        self._placement.look_for_added()

    def _patience(self) -> float:
        """Seconds that poll may wait: until the next publication is due, if one is."""
        now = self.services.clock()
        if not any(partition.models.unpublished for partition in self.partitions.values()):
            return STOP_S
        least = DRAINED_S if now < self._rested_at else 0.0
        return min(STOP_S, max(least, self._published_at + self.config.publish_interval_s - now))

    def _take(self) -> None:
        """Take what was polled, piece by piece, until publications are due; the rest is for the next turn."""
        until = self.services.clock() + self.config.publish_interval_s
        waiting = self._owned.waiting
        for partition in list(waiting):
            while waiting[partition] and partition in self.partitions:
                before = waiting[partition]
                waiting[partition] = self._take_from(self.partitions[partition], before)
                if len(waiting[partition]) == len(before):
                    # As many models as may begin in a second have begun.
                    time.sleep(PAUSE_S)
                    break
                if self._stopping or self.services.clock() >= until:
                    break
            if partition not in self.partitions or not waiting[partition]:
                del waiting[partition]
            if self._stopping or self.services.clock() >= until:
                break

    def _take_from(self, partition: OwnedPartition, records: list[Record]) -> list[Record]:
        """Take the next piece of these records; returns what is left."""
        # What does not fit into a turn is decoded, and looked up in the store, again.
        count = min(piece(records), A_TURN if partition.crowded else len(records))
        try:
            remaining = partition.take(records[:count])
            if len(remaining) < count and (logged_at := records[count - len(remaining) - 1].timestamp) is not None:
                self.services.metrics.took(partition.partition, logged_at)
            return [*remaining, *records[count:]]
        except SourceError:
            # The dead letters are away, so nothing can be saved, but what was learned goes live.
            self._publish(self.services.clock())
            raise

    def _tick(self) -> None:
        now = self.services.clock()
        rested = self._drained or now >= self._rested_at
        if rested and now - self._published_at >= self.config.publish_interval_s:
            self._publish(now)
        self._merging.turn(self.partitions)
        # With nothing to learn, half the time is no limit.
        at_once = self._drained and self._cut_short
        if at_once or now - self._saved_at >= self.config.checkpoint_interval_s:
            self._save(now)

    def _publish(self, now: float) -> None:
        """Publish for about as long as lies between two publications, each partition its share of that."""
        waiting = [partition for partition in self.partitions.values() if partition.models.unpublished]
        for turn, partition in enumerate(waiting, start=1):
            partition.models.publish(now + turn * self.config.publish_interval_s / len(waiting))
            self._published_at = now
        end = self.services.clock()
        self._rested_at = end + (end - now) * (1 / (CATCHING_UP if self._behind else PUBLISHING) - 1)

    def _save(self, now: float) -> None:
        """Save the oldest changes of all partitions, at least one, within the byte rate and half the time; then move
        marks and commits to where that leaves them."""
        allowance, until = self.services.allowance, now + self.config.checkpoint_interval_s / 2
        allowance.grow(now)
        changed = [(model, owned) for owned in self.partitions.values() for model in owned.models.unsaved.values()]
        changed.sort(key=lambda pair: pair[0].changed_at)
        self._cut_short = False
        for owned, models in by_owner(changed, lambda: allowance.left):
            owned.models.keep(models)
            if allowance.left <= 0 or self.services.clock() >= until:
                # Bytes are allowed again only as time goes by.
                self._cut_short = allowance.left > 0
                break
        for owned in self.partitions.values():
            owned.advance(self._owned.untaken(owned.partition))
        self._saved_at = self.services.clock()
        self._measures.tell_unsaved(self.partitions)
        for owned in self.partitions.values():
            owned.try_waiting()

    def _finish(self) -> None:
        """Drain: what is learned goes live and is saved; what was not taken stays in the log."""
        until = self.services.clock() + FINISH_S
        whole = [self._saved_whole(partition, until) for partition in self.partitions.values()]
        if not all(whole):
            return
        self._merge_at_the_end()
        if unsaved := sum(len(partition.models.unsaved) for partition in self.partitions.values()):
            log.warning("stopped_partly_unsaved", models=unsaved, action="the next start reads their events again")
            return
        log.info("drained_and_saved", partitions=len(self.partitions))

    def _merge_at_the_end(self) -> None:
        """Publish what the parts have saved by now. Whoever is next publishes it otherwise."""
        try:
            self._merging.turn(self.partitions, at_once=True)
        except (Fenced, PlacementChanged, StoreError) as error:
            log.warning("stopped_unmerged", reason=str(error), action="the next owner of the model publishes its parts")

    def _saved_whole(self, partition: OwnedPartition, until: float) -> bool:
        """Save one partition at the end; False if it must be read again. What keeps one from that keeps no other."""
        try:
            # What was polled meanwhile was passed over, so positions say nothing.
            if self._owned.doubt:
                raise self._owned.doubt
            partition.save(self._owned.untaken(partition.partition), until=until)
        except Rewind as rewind:
            log.error(rewind.why, reason=str(rewind), action="stopped unsaved, the next start reads it again")
            return False
        except (Fenced, PlacementChanged) as refused:
            # Nothing is lost, so this is no failure: whoever owns the model next reads these events from the log.
            log.warning("stopped_unsaved", reason=str(refused), action="its next owner reads these events again")
            return False
        except (StoreError, SourceError) as error:
            raise type(error)(f"stopped unsaved, the next start reads it again: {error}") from error
        return True

    def _note(self, doubt: Fenced | StoreChanged) -> None:
        """A write was refused, or the store is not what it was: to be looked into before anything else is done."""
        self._owned.doubt = doubt
        if isinstance(doubt, Fenced):
            self.services.metrics.fenced.inc()
            log.warning("fenced", reason=str(doubt))
        else:
            self.services.metrics.store_changes.inc()
            log.error("store_changed", reason=str(doubt), action="what the store lacks is learned again from the log")

    def _start_over(self, doubt: Fenced | StoreChanged) -> None:
        """Prove the membership by a commit, then begin every partition again from what is stored.

        A worker that its group has expelled meanwhile (it was paused, or cut off) owns nothing any more. It lets go of
        everything without saving: the new owners learn that from the log. Its next poll joins the group again; if
        another process took its ``log.member``, that poll raises SourceRefused.
        """
        for partition, before in list(self.partitions.items()):
            again = OwnedPartition(partition, self.services, self._placement.read(partition.topic_id))
            start = again.start(before.mark.offset)
            if start is not None and not self._is_member(partition, start, doubt):
                log.warning("expelled", reason=str(doubt), action="gives up all partitions and joins again")
                self._owned.lost(list(self.partitions))
                break
            begin = next(
                (offset for offset in (start, before.first, self._owned.untaken(partition)) if offset is not None), None
            )
            before.drop_all()
            self.partitions[partition] = again
            self._owned.waiting.pop(partition, None)
            if begin is not None:
                self.services.source.seek(partition, begin)
            log.info("partition_begins_again", partition=str(partition), start=begin)
        self._owned.doubt = None

    def _pass_over(self) -> None:
        """Poll while nothing may be taken, because rebalances go on inside; what it brings is sought again later."""
        for partition, records in by_partition(self._fetch()).items():
            owned = self.partitions.get(partition)
            if owned and owned.first is None and partition not in self._owned.waiting:
                owned.first = records[0].offset

    def _is_member(self, partition: Partition, start: int, doubt: Fenced | StoreChanged) -> bool:
        member = self.services.source.commit({partition: start})
        if member is None:
            self._pass_over()
            raise SourceError(f"{doubt}; it is unknown for now whether this worker is still a member of its group")
        return member

    def __repr__(self) -> str:
        state: dict[str, Any] = {
            str(partition): list(owned.models.loaded) for partition, owned in self.partitions.items()
        }
        return f"LearnerWorker({state})"
