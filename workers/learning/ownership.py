"""The partitions of a worker: its group assigns and revokes them, and each begins again if its memory is in doubt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import structlog

from omdml.errors import CorruptError, Fenced, OmdmlError, SourceError, StoreError, StoreLost
from omdml.streams.protocols.log import CommitResult, Partition, Record
from omdml.workers.events.decoding import by_partition
from omdml.workers.learning.interruptions import ModelReplaced, Rewind, StoreChanged
from omdml.workers.learning.log_placement import LogPlacement
from omdml.workers.learning.measures import Measures
from omdml.workers.learning.partition.owned_partition import OwnedPartition
from omdml.workers.learning.services import Services

LEARNED_AGAIN = "its next owner learns from the log what was not saved"

log = structlog.get_logger(__name__)


class Ownership:
    """Listens to the source, which reports assigned and revoked partitions inside a poll.

    Attributes
    ----------
    partitions
        Those that the worker owns.
    polled
        Records that were polled and not taken yet, by partition.
    fresh
        Partitions that were assigned, and whose models have no version 0 yet.
    doubt
        Set if what is in memory may not be this worker's, or may not have been kept: then nothing is saved.
    leaving
        Set at the worker's end: it has saved everything itself, or must save nothing after an error.
    uncommitted
        How far partitions were saved that this worker gave up, or that its last commit was refused for.
    from_beginning
        A gap was accepted, and the log does not tell where it ends.
    """

    def __init__(self, services: Services, placement: LogPlacement, measures: Measures, hand_over_s: float) -> None:
        self.services = services
        self.hand_over_s = hand_over_s
        self.partitions: dict[Partition, OwnedPartition] = {}
        self.polled: dict[Partition, list[Record]] = {}
        self.fresh: list[Partition] = []
        self.doubt: Fenced | StoreChanged | None = None
        self.leaving = False
        self.uncommitted: dict[Partition, int] = {}
        self.from_beginning = False
        self._placement = placement
        self._measures = measures

    def untaken(self, partition: Partition) -> int | None:
        """Offset of the first record of a partition that was polled and not taken."""
        return self.polled[partition][0].offset if partition in self.polled else None

    def assigned(self, committed: Mapping[Partition, int | None]) -> dict[Partition, int | None]:
        """Own these partitions; returns where each is read from."""
        starts: dict[Partition, int | None] = {}
        for partition, offset in committed.items():
            owned = OwnedPartition(partition, self.services, self._placement.read(partition.topic_id))
            start = owned.start(None if self.from_beginning else offset)
            starts[partition] = None if self.from_beginning else start
            self.partitions[partition] = owned
            self.uncommitted.pop(partition, None)
            self.fresh.append(partition)
            self.services.metrics.intake.rebalances.labels("assigned").inc()
            log.info("partition_assigned", partition=str(partition), committed=offset, start=starts[partition])
        return starts

    def revoked(self, partitions: Iterable[Partition]) -> None:
        """Save what can be saved, then give up the partitions. The next owner replays the rest."""
        until = self.services.clock() + self.hand_over_s
        for partition in partitions:
            owned, untaken = self.partitions.pop(partition, None), self.untaken(partition)
            self.polled.pop(partition, None)
            if owned is None:
                continue
            try:
                if not self.leaving and not self.doubt and self.services.clock() < until:
                    owned.saving.save(untaken, commit=False, until=until)
                    self.note_uncommitted(owned)
                log.info("partition_revoked", partition=str(partition), mark=owned.mark.offset)
            except (OmdmlError, Rewind) as error:
                log.warning("revoked_unsaved", partition=str(partition), reason=str(error), action=LEARNED_AGAIN)
                if isinstance(error, StoreError | SourceError) and not isinstance(error, Fenced | StoreLost):
                    # Saving the others would wait for it too.
                    until = -math.inf
            finally:
                owned.drop_all()
                self._give_up(partition, "revoked")

    def note_uncommitted(self, owned: OwnedPartition) -> None:
        """Note how far a partition was saved, if that is not committed."""
        if owned.mark.offset is not None and owned.mark.offset != owned.saving.committed:
            self.uncommitted[owned.partition] = owned.mark.offset

    def lost(self, partitions: Iterable[Partition]) -> None:
        """Drop partitions that the group gave to others. Nothing can be saved any more."""
        for partition in partitions:
            self.polled.pop(partition, None)
            if partition in self.partitions:
                self.partitions.pop(partition).drop_all()
            self._give_up(partition, "lost")
            log.warning("partition_lost", partition=str(partition), action=LEARNED_AGAIN)

    def _give_up(self, partition: Partition, how: str) -> None:
        self._measures.forget(partition)
        self.services.metrics.intake.rebalances.labels(how).inc()

    def introduce(self) -> None:
        """Publish version 0 of configured models that live in partitions just assigned."""
        specs = self.services.specs
        while self.fresh:
            if owned := self.partitions.get(self.fresh[-1]):
                for name in specs.named:
                    # Whoever merges the parts of a model publishes its first version, too.
                    if name not in specs.in_parts and owned.placement.home(name) == owned.partition.number:
                        self._publish_first(owned, name)
            self.fresh.pop()

    def _publish_first(self, partition: OwnedPartition, name: str) -> None:
        try:
            partition.publish_first(name)
        except CorruptError as error:
            # The model waits from its first event on, and keeps no other model waiting.
            action = "its events will wait in the log, other models go on"
            log.error("model_not_published", model=name, reason=str(error), action=action)

    def note(self, doubt: Fenced | StoreChanged) -> None:
        """Note that a write was refused, or that the store is not what it was: the next turn begins with that."""
        self.doubt = doubt
        if isinstance(doubt, ModelReplaced):
            log.info("model_replaced", reason=str(doubt), action="partitions begin again from what is stored")
        elif isinstance(doubt, Fenced):
            self.services.metrics.loop.fenced.inc()
            log.warning("fenced", reason=str(doubt), action="partitions begin again from what is stored")
        else:
            self.services.metrics.loop.store_changes.inc()
            log.error("store_changed", reason=str(doubt), action="what the store lacks is learned again from the log")

    def start_over(self, poll: Callable[[], list[Record]]) -> None:
        """Prove the membership by a commit, then begin every partition again from what is stored.

        A worker that its group has expelled meanwhile (it was paused, or cut off) owns nothing any more. It drops
        everything without saving: the new owners learn that from the log. Its next poll joins the group again; if
        another process took its ``log.member``, that poll raises SourceRefused.
        """
        for partition, earlier in list(self.partitions.items()):
            renewed = OwnedPartition(partition, self.services, self._placement.read(partition.topic_id))
            start = renewed.start(earlier.mark.verified)
            if start is not None and earlier.mark.verified is None and earlier.first is not None:
                # There was no mark when this owner began, and nothing else says where it began.
                start = renewed.mark.verified = min(start, earlier.first)
            if start is not None and not self._is_member(partition, start, poll):
                log.warning("expelled", reason=str(self.doubt), action="gives up all partitions and joins again")
                self.lost(list(self.partitions))
                break
            begin = next(
                (offset for offset in (start, earlier.first, self.untaken(partition)) if offset is not None), None
            )
            earlier.drop_all()
            self.partitions[partition] = renewed
            self.polled.pop(partition, None)
            if begin is not None:
                self.services.source.seek(partition, begin)
            log.info("partition_begins_again", partition=str(partition), start=begin)
        self.doubt = None

    def _pass_over(self, polled: Mapping[Partition, list[Record]]) -> None:
        """Take nothing of what a poll brought, and note where it begins: it is read again from there."""
        for partition, records in polled.items():
            owned = self.partitions.get(partition)
            if owned and owned.first is None and partition not in self.polled:
                owned.first = records[0].offset

    def _is_member(self, partition: Partition, start: int, poll: Callable[[], list[Record]]) -> bool:
        result = self.services.source.commit({partition: start})
        if result is CommitResult.UNKNOWN:
            # A rebalance makes progress only inside a poll.
            self._pass_over(by_partition(poll()))
            raise SourceError(f"{self.doubt}; it is unknown for now whether this worker is still a member of its group")
        return result is CommitResult.RECORDED
