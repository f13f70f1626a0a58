"""A Kafka topic as a source of feedback.

assignments.py says which thread does what, and internals.py what of kafka-python is replaced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import kafka.errors
import structlog
from kafka import TopicPartition

from omdml.errors import GapError, OmdmlError, SourceError
from omdml.streams.kafka import internals
from omdml.streams.kafka import topic as topics
from omdml.streams.kafka.options import KafkaOptions, translated
from omdml.streams.kafka.reading import gap
from omdml.streams.kafka.reading.assignments import Assignments
from omdml.streams.kafka.reading.batches import Unreadable
from omdml.streams.kafka.reading.client_health import Failures, Flow
from omdml.streams.kafka.reading.commits import Commits
from omdml.streams.kafka.reading.consumer import (
    REFUSALS,
    Rebalance,
    as_records,
    leave,
    milliseconds,
    offset_range,
    offset_ranges,
    open_consumer,
    position_of,
    remove_static_member,
)
from omdml.streams.kafka.reading.epochs import Epochs
from omdml.streams.kafka.reading.topic_watch import LOOK_LIMIT_S, TopicWatch
from omdml.streams.protocols.log import NOTHING, CommitResult, Listener, Partition, Record

# Seconds of one poll of the client, which does not return by itself when partitions were assigned.
SLICE_S = 0.1

log = structlog.get_logger(__name__)


class KafkaSource:
    """A member of a consumer group that reads one topic, from positions the caller keeps.

    Parameters
    ----------
    options
        How to reach the cluster.
    topic, group
        Names of the topic and of the consumer group.
    group_instance_id
        Makes this a static member: if it is killed and back within the session timeout, it gets its partitions again
        without a rebalance.
    session_timeout_s
        A member that is silent for this long loses its partitions.
    partitioner
        Hash by which senders choose a partition: a name in :data:`omdml.streams.partitioners.PARTITIONERS`.

    Attributes
    ----------
    topic_id
        The topic's identity, fixed for this source's life.
    partitions
        Number of partitions that the topic had a second ago.
    command
        The command that an operator runs again to go on behind a gap.

    Raises
    ------
    SourceError
        The cluster is out of reach for ``options.start_timeout_s`` or refuses, the topic is missing or compacted.
    """

    def __init__(
        self,
        options: KafkaOptions,
        *,
        topic: str,
        group: str,
        group_instance_id: str | None = None,
        session_timeout_s: float = 10.0,
        partitioner: str = "murmur2",
    ) -> None:
        self.options = options
        self.topic = topic
        self.group = group
        self.group_instance_id = group_instance_id
        self.session_timeout_s = session_timeout_s
        self.partitioner = partitioner
        self.command = gap.WORKER
        self._listener: Listener
        self._read: int | None = None
        self._assignments = Assignments()
        self._gaps = gap.Gaps()
        self._epochs = Epochs()
        self._flow = Flow()
        self._failures = Failures()
        self._closed = False
        self._watch = TopicWatch(options, topic)
        try:
            description = topics.require(self._watch.admin, options, topic)
            self._consumer = self._connect()
        except BaseException:
            self._watch.admin.close()
            raise
        self.topic_id, self.partitions = description
        self._commits = Commits(topic, self.topic_id, group)

    def subscribe(self, listener: Listener, read: int | None = None) -> None:
        """Join the group; the listener hears of partitions inside a later :meth:`poll`."""
        self._listener, self._read = listener, read
        revoked, lost = partial(self._give_up, tell=listener.revoked), partial(self._give_up, tell=listener.lost)
        self._consumer.subscribe([self.topic], listener=Rebalance(self._note_assigned, revoked, lost))
        with translated(self.options, f"asking for topic {self.topic!r}"):
            # A member that leads the group before it knows the topic would assign no partitions.
            self._consumer.partitions_for_topic(self.topic)

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """Records in order within each partition; see :meth:`omdml.streams.protocols.log.Source.poll`.

        Raises
        ------
        GapError
            A position is outside the log, or the topic was deleted and created again. ``error.partition`` stops until
            :meth:`seek`; the others go on with the next call. Every call reports a topic that was created again.
        SourceRefused
            The cluster refuses this member, or another process has its ``group_instance_id``.
        ClientFailed
            Several clients failed one after the other.
        Exception
            What the listener raised, also if it was raised on the client's thread.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            self._assignments.raise_listener_error()
            with translated(self.options, f"reading topic {self.topic!r}"):
                records = self._poll_once(max_records, max(0.0, min(SLICE_S, deadline - time.monotonic())))
            if records or time.monotonic() >= deadline:
                return records

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at ``offset``. If the partition stopped at a gap that was reported, this accepts the gap."""
        tp = self._assignments.place(self.topic, partition)
        if tp is None:
            raise SourceError(f"cannot seek {partition} of topic {self.topic!r}: this member does not own it")
        if self._gaps.accept(tp):
            self._epochs.forget(tp)
        self._epochs.seek(self._consumer, tp, offset)
        self._consumer.resume(tp)

    def commit(self, offsets: Mapping[Partition, int]) -> CommitResult:
        """Commit offsets with the topic's id and the leader's epoch. A silent cluster is not asked again."""
        places = {partition: self._assignments.place(self.topic, partition) for partition in offsets}
        if None in places.values():
            self._commits.log_refusal("partition not owned")
            return CommitResult.NOT_OWNED
        if not offsets:
            return CommitResult.RECORDED
        if self._watch.away or self._commits.unanswered_at > self._watch.answered_at:
            return CommitResult.UNKNOWN
        offset_of = {tp: offsets[partition] for partition, tp in places.items()}
        with translated(self.options, f"committing to group {self.group!r}"):
            return self._commits.commit(self._consumer, offset_of, self._epochs)

    def progress(self) -> dict[Partition, tuple[int, int]]:
        """The next offset of each owned partition, and the log's end (of committed transactions) as of a second ago.

        A position that cannot be found while the cluster is out of reach is left out. This takes at most half a second.
        """
        until = time.monotonic() + LOOK_LIMIT_S
        progress: dict[Partition, tuple[int, int]] = {}
        for tp, partition in self._owned.items():
            position = self._position(tp, max(0.0, until - time.monotonic()))
            if position is not None:
                progress[partition] = position, max(position, self._watch.ends[tp])
        return progress

    @property
    def away(self) -> bool:
        """Whether the cluster is out of reach now."""
        return self._watch.away

    def backlog(self, position: int, end: int) -> int:
        """How many offsets lie between a position and an end."""
        return end - position

    def begin(self, partition: Partition) -> int:
        """The first offset that the log still holds of a partition; raises SourceError."""
        return self._range(partition)[0]

    def end(self, partition: Partition) -> int:
        """The offset after the last record (of committed transactions) of a partition; raises SourceError."""
        return self._range(partition)[1]

    def _range(self, partition: Partition) -> tuple[int, int]:
        with translated(self.options, f"looking at topic {self.topic!r}"):
            return offset_range(self._consumer, TopicPartition(self.topic, partition.number))

    def close(self, uncommitted: Mapping[Partition, int] = NOTHING) -> None:
        """Leave the group at once, also as a static member; the listener hears which partitions are given up.

        A second call does nothing. See :meth:`omdml.streams.protocols.log.Source.close`.
        """
        if self._closed:
            return
        self._closed = True
        member = self._consumer.group_metadata()
        try:
            leave(self._consumer, self.group)
            if self.group_instance_id and member.member_id:
                remove_static_member(self._watch.admin, self.group, self.group_instance_id, member.member_id)
            if uncommitted and not self._watch.away:
                offsets = {TopicPartition(self.topic, place.number): offset for place, offset in uncommitted.items()}
                self._commits.commit_when_all_left(self._watch.admin, offsets, self._epochs)
        finally:
            self._watch.admin.close()
        self._assignments.raise_listener_error()

    # The polling thread

    def _connect(self) -> Any:
        return open_consumer(
            self.options, self.group, self.group_instance_id, self.session_timeout_s, lambda: self._read
        )

    def _poll_once(self, max_records: int, timeout_s: float) -> list[Record]:
        self._gaps.raise_next()
        try:
            if self._commits.replaced or internals.has_lost_its_name(self._consumer):
                raise kafka.errors.FencedInstanceIdError
            if self._watch.is_due:
                self._restart_if_stuck(self._ask_cluster(late=True))
            # Without this member's polls, the whole group would wait until the cluster answers it.
            with suppress(kafka.errors.RetriableError):
                if self._assignments.pending:
                    self._take_over()
            internals.go_on_joining(self._consumer)
            batches = self._consumer.poll(timeout_ms=milliseconds(timeout_s), max_records=max_records)
        except kafka.errors.OffsetOutOfRangeError as error:
            self._stop(error.args[0], gap.out_of_range)
        except kafka.errors.LogTruncationError as error:
            self._stop_at_cuts(error.divergent_offsets)
        except Unreadable as error:
            self._stop_if_damaged(error)
        except kafka.errors.RetriableError:
            # The cluster is away. The regular checks log when that begins and ends.
            time.sleep(timeout_s)
        except kafka.errors.FencedInstanceIdError as error:
            self._failures.name_taken(self.group, self.group_instance_id, error)
            self._make_client()
        except (OmdmlError, *REFUSALS):
            raise
        except Exception as error:
            # Whatever the error is, a client that raises it cannot be trusted any more.
            self._replace_client(error)
        else:
            return self._records(batches)
        return []

    def _records(self, batches: Mapping[TopicPartition, list[Any]]) -> list[Record]:
        if batches and not self._is_ours(batches):
            return []
        self._epochs.note(self._consumer, self._owned)
        self._flow.delivered(batches)
        return [record for tp, batch in batches.items() for record in as_records(self._owned[tp], batch)]

    def _stop_at_cuts(self, divergent: Mapping[TopicPartition, Any]) -> None:
        for tp, agreed in divergent.items():
            position, cut = self._position(tp), agreed and agreed.offset
            # If not, this is a late answer: the caller has already gone back to that position.
            if cut is None or position is None or cut < position:
                self._stop({tp: position}, partial(gap.cut, cut_at=cut))

    def _stop_if_damaged(self, error: Unreadable) -> None:
        # The batch is dropped, so that it is fetched once more.
        tp = internals.drop_batch(self._consumer)
        position = self._position(tp)
        if self._gaps.is_damaged(tp, position):
            self._stop({tp: position}, partial(gap.unreadable, error=error))

    def _take_over(self) -> None:
        """Ask the listener where to start the partitions that the last rebalance assigned, and start there."""
        assigned = {tp: Partition(self.topic_id, tp.partition) for tp in self._assignments.pending}
        self.partitions = max(self.partitions, *(tp.partition + 1 for tp in assigned))
        begins, ends = offset_ranges(self._consumer, assigned)
        committed, elsewhere = self._commits.read(self._consumer, assigned)
        offsets = {partition: committed[tp].offset if tp in committed else None for tp, partition in assigned.items()}
        starts = self._listener.assigned(offsets)
        self._assignments.pending.clear()
        assigned = {tp: partition for tp, partition in assigned.items() if partition in starts}
        self._owned.update(assigned)
        self._watch.ends |= ends
        for tp, partition in assigned.items():
            start = starts[partition]
            self._epochs.begin_with(tp, committed.get(tp))
            self._epochs.seek(self._consumer, tp, begins[tp] if start is None else start)
        self._consumer.resume(*(assigned.keys() - elsewhere.keys()))
        for tp in elsewhere.keys() & assigned.keys():
            explain = partial(gap.created_again, self.topic, assigned[tp], elsewhere[tp].offset, (begins[tp], ends[tp]))
            self._gaps.add(tp, partial(explain, before=elsewhere[tp].metadata, now=self.topic_id, command=self.command))
        self._gaps.raise_next()

    def _ask_cluster(self, late: bool = False) -> bool:
        """Ask for the ends of partitions and for the topic's id and size, once a second. True if it answered."""
        description = self._watch.look(self._consumer, self._owned, late)
        if description is None:
            return False
        if description.id != self.topic_id:
            raise self._stop_all(description.id)
        if self.partitions != description.partitions:
            self.partitions = description.partitions
            internals.refresh_metadata(self._consumer)
        return True

    def _is_ours(self, batches: Mapping[TopicPartition, list[Any]]) -> bool:
        """Whether these records belong to this topic: the client reads by name, also from a topic created again.

        Raises GapError if the topic surely is another one. If the cluster cannot say now, the records are polled again.
        """
        id_read = internals.topic_id(self._consumer, self.topic)
        if id_read is None or str(id_read) == self.topic_id or self._ask_cluster():
            return True
        for tp, batch in batches.items():
            self._epochs.seek(self._consumer, tp, batch[0].offset)
        return False

    def _restart_if_stuck(self, answered: bool) -> None:
        # Without an answer, neither ends nor first positions are known.
        unanswered = not answered or bool(self._assignments.pending)
        progress, flowing = {} if unanswered else self.progress(), self._owned.keys() - self._gaps.stopped
        looked_at = {tp: progress[self._owned[tp]] for tp in flowing if self._owned[tp] in progress}
        stuck = self._flow.look(looked_at, unanswered or internals.is_joining(self._consumer))
        if stuck or (self._flow.has_waited_long() and self._watch.replace_admin()):
            why = "events wait there, and the client brings none" if stuck else "only a new client gets answers"
            places = {"topic": self.topic, "partitions": sorted(tp.partition for tp in stuck)}
            log.error("kafka_fetching_stopped", **places, reason=why, action="making a new client")
            self._make_client()

    def _replace_client(self, error: Exception) -> None:
        """Continue with another client. Raises ClientFailed after too many in a row."""
        self._failures.reader_failed(self.topic, self.options, error)
        self._make_client()

    def _make_client(self) -> None:
        leave(self._consumer, self.group)
        # The old client may have left without reporting these as revoked.
        self._give_up(list(self._owned), self._listener.lost)
        self._assignments.pending.clear()
        self._consumer, self._flow, self._commits.replaced = self._connect(), Flow(), False
        self.subscribe(self._listener, self._read)

    # Gaps

    def _stop(self, positions: Mapping[TopicPartition, int | None], describe: Callable[..., GapError]) -> None:
        """Stop these partitions; the next polls raise the reasons, one after the other."""
        # If the topic was created again, that is the reason to report.
        self._ask_cluster()
        self._consumer.pause(*positions)
        for tp, position in positions.items():
            self._gaps.add(tp, partial(self._gap, tp, position, describe))

    def _gap(self, tp: TopicPartition, position: int | None, describe: Callable[..., GapError]) -> GapError:
        return describe(self.topic, self._owned[tp], position, offset_range(self._consumer, tp), command=self.command)

    def _stop_all(self, now: str) -> GapError:
        """Stop everything: positions mean nothing in a topic that was created again. Every poll raises this again."""
        self._watch.look_soon()
        if self._owned:
            self._consumer.pause(*self._owned)
        tp = min(self._owned, default=TopicPartition(self.topic, 0))
        partition, available = Partition(self.topic_id, tp.partition), offset_range(self._consumer, tp)
        describe = partial(gap.created_again, self.topic, partition, self._position(tp), available)
        return describe(before=self.topic_id, now=now, command=self.command)

    # The client's thread

    def _note_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._assignments.note_assigned(self._consumer, partitions)
        # They may be partitions of a topic that was created again.
        self._watch.look_soon()

    def _give_up(self, lost: Iterable[TopicPartition], tell: Callable[[list[Partition]], None]) -> None:
        self._gaps.forget(lost)
        self._assignments.give_up(lost, tell)

    # State

    @property
    def _owned(self) -> dict[TopicPartition, Partition]:
        return self._assignments.owned

    def _position(self, tp: TopicPartition, limit_s: float = LOOK_LIMIT_S) -> int | None:
        return position_of(self._consumer, tp, limit_s) if tp in self._owned else None
