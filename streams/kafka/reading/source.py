"""A Kafka topic as a source of feedback.

Threads: kafka-python reports rebalances on its own I/O thread, and only while the polling thread waits inside the
client's ``poll`` or ``close``. The two never run at the same time, so nothing here is locked.

New partitions are only noted and paused on the I/O thread. The polling thread then asks the listener where to start,
because there it may take its time (heartbeats go on) and can read the committed offsets. Revoked partitions are
reported on the I/O thread, because the client gives them up as soon as that call returns.
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
from kafka.structs import OffsetAndMetadata

from omdml.errors import ClientFailed, GapError, OmdmlError, SourceError
from omdml.streams.kafka import internals
from omdml.streams.kafka import topic as topics
from omdml.streams.kafka.options import KafkaOptions, translated
from omdml.streams.kafka.reading import gap
from omdml.streams.kafka.reading.batches import Unreadable
from omdml.streams.kafka.reading.client_health import Absence, Failures, Flow, Outage
from omdml.streams.kafka.reading.consumer import (
    ANSWER_LIMIT_S,
    EXPELLED,
    Rebalance,
    as_records,
    leave,
    milliseconds,
    offset_range,
    open_consumer,
    remove_static_member,
    replaced,
)
from omdml.streams.kafka.reading.epochs import Epochs
from omdml.streams.protocols.log import Listener, Partition, Record

# Seconds between two checks of the ends of partitions, the topic's identity and the connection to the cluster.
LOOK_EVERY_S = 1.0
LOOK_LIMIT_S = 0.5
# Seconds of one poll of the client, which does not return by itself when partitions were assigned.
SLICE_S = 0.1
# A new client would fail with these errors, too.
REFUSALS = (
    kafka.errors.AuthorizationError,
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedCodecError,
)

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
        Makes this a static member: if it is back within the session timeout, it gets its partitions again without a
        rebalance.
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
        self._kept_error: Exception | None = None
        self._given: set[TopicPartition] = set()
        self._owned: dict[TopicPartition, Partition] = {}
        self._gaps = gap.Gaps()
        self._ends: dict[TopicPartition, int] = {}
        self._epochs = Epochs()
        # The offset at which a batch could not be read.
        self._unread: dict[TopicPartition, int | None] = {}
        self._looked_at = float("-inf")
        self._outage, self._absence = Outage(options.servers), Absence(options.servers, topic)
        self._flow = Flow()
        self._failures = Failures()
        self._closed = self._replaced = False
        self._admin = topics.open_admin(options)
        try:
            found = topics.require(self._admin, options, topic)
            self._consumer = self._connect()
        except BaseException:
            self._admin.close()
            raise
        self.topic_id, self.partitions = found

    def subscribe(self, listener: Listener, read: int | None = None) -> None:
        """Join the group; the listener hears of partitions inside a later :meth:`poll`."""
        self._listener, self._read = listener, read
        revoked, lost = partial(self._take, tell=listener.revoked), partial(self._take, tell=listener.lost)
        self._consumer.subscribe([self.topic], listener=Rebalance(self._give, revoked, lost))
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
            self._raise_kept_error()
            with translated(self.options, f"reading topic {self.topic!r}"):
                records = self._poll_once(max_records, max(0.0, min(SLICE_S, deadline - time.monotonic())))
            if records or time.monotonic() >= deadline:
                return records

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at ``offset``. If the partition stopped at a gap that was reported, this accepts the gap."""
        tp = self._where(partition)
        if tp is None:
            raise SourceError(f"cannot seek {partition} of topic {self.topic!r}: this member does not own it")
        if self._gaps.accept(tp):
            self._epochs.forget(tp)
        self._epochs.seek(self._consumer, tp, offset)
        self._consumer.resume(tp)

    def commit(self, offsets: Mapping[Partition, int]) -> bool | None:
        """Commit offsets with the topic's id and the leader's epoch.

        Returns False if this member does not own a partition, and None if the cluster cannot say now.
        """
        places = {partition: self._where(partition) for partition in offsets}
        if None in places.values():
            return self._refused("partition not owned", False)
        if not offsets:
            return True
        if self._outage.told:
            return None
        epoch, topic_id = self._epochs.of, self.topic_id
        wanted = {tp: OffsetAndMetadata(offsets[one], topic_id, epoch(tp, offsets[one])) for one, tp in places.items()}
        with translated(self.options, f"committing to group {self.group!r}"):
            try:
                self._consumer.commit(wanted, timeout_ms=milliseconds(ANSWER_LIMIT_S))
            except EXPELLED as error:
                # The client's next polls would not report it.
                self._replaced = isinstance(error, kafka.errors.FencedInstanceIdError)
                rebalancing = isinstance(error.args[:1] and error.args[0], kafka.errors.RebalanceInProgressError)
                return self._refused(type(error).__name__, None if rebalancing else False)
            except (kafka.errors.RetriableError, kafka.errors.RebalanceInProgressError) as error:
                return self._refused(type(error).__name__, None)
        return True

    def _refused(self, why: str, answer: bool | None) -> bool | None:
        log.warning("kafka_commit_refused", topic=self.topic, group=self.group, why=why)
        return answer

    def progress(self) -> dict[Partition, tuple[int, int]]:
        """The next offset of each owned partition, and the log's end (of committed transactions) as of a second ago.

        A position that cannot be found while the cluster is out of reach is left out. All of them together take at
        most half a second.
        """
        until = time.monotonic() + LOOK_LIMIT_S
        return {
            partition: (position, max(position, self._ends[tp]))
            for tp, partition in self._owned.items()
            if (position := self._position(tp, max(0.0, until - time.monotonic()))) is not None
        }

    @property
    def away(self) -> bool:
        """Whether the cluster is out of reach now."""
        return self._outage.told

    def backlog(self, position: int, end: int) -> int:
        """Offsets."""
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

    def close(self) -> None:
        """Leave the group at once, also as a static member; the listener hears which partitions are given up.

        A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        member = self._consumer.group_metadata()
        try:
            leave(self._consumer, self.group)
            if self.group_instance_id and member.member_id:
                remove_static_member(self._admin, self.group, self.group_instance_id, member.member_id)
        finally:
            self._admin.close()
        self._raise_kept_error()

    # The polling thread

    def _connect(self) -> Any:
        return open_consumer(
            self.options, self.group, self.group_instance_id, self.session_timeout_s, lambda: self._read
        )

    def _poll_once(self, max_records: int, timeout_s: float) -> list[Record]:
        self._gaps.tell()
        try:
            if self._replaced:
                raise kafka.errors.FencedInstanceIdError
            if time.monotonic() - self._looked_at >= LOOK_EVERY_S and self._look():
                self._restart_if_stuck()
            if self._given:
                self._take_over()
            internals.go_on_joining(self._consumer)
            batches = self._consumer.poll(timeout_ms=milliseconds(timeout_s), max_records=max_records)
        except kafka.errors.OffsetOutOfRangeError as error:
            self._stop(error.args[0], gap.out_of_range)
            return []
        except kafka.errors.LogTruncationError as error:
            for tp, kept in error.divergent_offsets.items():
                position, cut = self._position(tp), kept and kept.offset
                # Otherwise this is a late answer: the caller has already gone back to that position.
                if cut is None or position is None or cut < position:
                    self._stop({tp: position}, partial(gap.cut, cut_at=cut))
            return []
        except Unreadable as error:
            tp = internals.drop_batch(self._consumer)
            before, self._unread[tp] = self._unread.get(tp), self._position(tp)
            # The network may have damaged the batch, so it is fetched once more before it counts as damaged.
            if before is not None and before == self._unread[tp]:
                self._stop({tp: before}, partial(gap.unreadable, error=error))
            return []
        except kafka.errors.RetriableError:
            # The cluster is away. The regular checks log when that begins and ends.
            time.sleep(timeout_s)
            return []
        except kafka.errors.FencedInstanceIdError as error:
            raise replaced(self.group, self.group_instance_id) from error
        except (OmdmlError, *REFUSALS):
            raise
        except Exception as error:
            # Whatever the error is, a client that raises it cannot be trusted any more.
            self._replace_client(error)
            return []
        if batches and not self._is_ours(batches):
            return []
        self._epochs.note(self._consumer, self._owned)
        self._flow.delivered(batches)
        return [record for tp, batch in batches.items() for record in as_records(self._owned[tp], batch)]

    def _take_over(self) -> None:
        """Ask the listener where to start the partitions that the last rebalance assigned, and start there."""
        given = {tp: Partition(self.topic_id, tp.partition) for tp in self._given}
        self.partitions = max(self.partitions, *(tp.partition + 1 for tp in given))
        limit = milliseconds(ANSWER_LIMIT_S)
        begins = self._consumer.beginning_offsets(list(given), timeout_ms=limit)
        ends = self._consumer.end_offsets(list(given), timeout_ms=limit)
        committed = {tp: self._consumer.committed(tp, metadata=True, timeout_ms=limit) for tp in given}
        elsewhere = {tp for tp, kept in committed.items() if kept and kept.metadata not in ("", self.topic_id)}
        known = {tp: kept.offset for tp, kept in committed.items() if kept and tp not in elsewhere}
        starts = self._listener.assigned({partition: known.get(tp) for tp, partition in given.items()})
        self._given.clear()
        given = {tp: partition for tp, partition in given.items() if partition in starts}
        self._owned |= given
        self._ends |= ends
        for tp, partition in given.items():
            start = starts[partition]
            self._epochs.know(tp, committed[tp] if tp in known else None)
            self._epochs.seek(self._consumer, tp, begins[tp] if start is None else start)
        self._consumer.resume(*(given.keys() - elsewhere))
        for tp in elsewhere & given.keys():
            available, ids = (begins[tp], ends[tp]), {"before": committed[tp].metadata, "now": self.topic_id}
            where = self.topic, given[tp], committed[tp].offset, available
            self._gaps.add(tp, partial(gap.created_anew, *where, **ids, command=self.command))
        self._gaps.tell()

    def _look(self) -> bool:
        """Once a second, ask for the ends of partitions and for the topic's id. True if the cluster answered."""
        found, why = None, f"topic {self.topic!r} is missing"
        try:
            found = topics.describe(self._admin, self.topic)
            self._absence.note(found is None)
            if found:
                asked = list(self._owned) or [TopicPartition(self.topic, 0)]
                self._ends |= self._consumer.end_offsets(asked, timeout_ms=milliseconds(LOOK_LIMIT_S))
        except kafka.errors.RetriableError as error:
            found, why = None, type(error).__name__
        self._looked_at = time.monotonic()
        if found is None:
            self._outage.goes_on(why)
            return False
        self._outage.is_over()
        if found.id != self.topic_id:
            raise self._created_anew(found.id)
        if self.partitions != found.partitions:
            self.partitions = found.partitions
            internals.refresh_metadata(self._consumer)
        return True

    def _is_ours(self, batches: Mapping[TopicPartition, list[Any]]) -> bool:
        """Whether these records belong to this topic. The check costs nothing.

        The client reads by name, so it would go on reading a topic that was deleted and created again. Raises GapError
        if the topic surely is another one. If the cluster cannot say now, the records are polled again.
        """
        seen = internals.topic_id(self._consumer, self.topic)
        if seen is None or str(seen) == self.topic_id or self._look():
            return True
        for tp, batch in batches.items():
            self._epochs.seek(self._consumer, tp, batch[0].offset)
        return False

    def _restart_if_stuck(self) -> None:
        flowing = self._owned.keys() - self._gaps.stopped
        progress = {tp: (position, self._ends[tp]) for tp in flowing if (position := self._position(tp)) is not None}
        if stuck := self._flow.look(progress):
            numbers = sorted(tp.partition for tp in stuck)
            log.error("kafka_fetching_stopped", topic=self.topic, partitions=numbers, do="making a new client")
            self._make_client()

    def _replace_client(self, error: Exception) -> None:
        """Go on with another client; raises ClientFailed after too many in a row."""
        what = f"{type(error).__name__}: {self.options.redact(str(error))}"
        log.error("kafka_client_failed", topic=self.topic, error=what, do="making a new client", exc_info=True)
        if not self._failures.wait():
            raise ClientFailed(
                f"topic {self.topic!r} at {self.options.servers}: one client after the other fails: {what}; "
                "start this again, and if that does not help, see the broker's log"
            ) from error
        self._make_client()

    def _make_client(self) -> None:
        leave(self._consumer, self.group)
        # The old client may have left without reporting these as revoked.
        self._take(list(self._owned), self._listener.lost)
        self._given.clear()
        self._consumer, self._flow = self._connect(), Flow()
        self.subscribe(self._listener, self._read)

    # Gaps

    def _stop(self, positions: Mapping[TopicPartition, int | None], tell: Callable[..., GapError]) -> None:
        """Stop these partitions; the next polls raise the reasons, one after the other."""
        # If the topic was created again, that is the reason to report.
        self._look()
        self._consumer.pause(*positions)
        for tp, position in positions.items():
            self._gaps.add(tp, partial(self._told, tp, position, tell))

    def _told(self, tp: TopicPartition, position: int | None, tell: Callable[..., GapError]) -> GapError:
        return tell(self.topic, self._owned[tp], position, offset_range(self._consumer, tp), command=self.command)

    def _created_anew(self, now: str) -> GapError:
        """Stop everything: positions in the old topic mean nothing in the new one. Every poll raises this again."""
        self._looked_at = float("-inf")
        if self._owned:
            self._consumer.pause(*self._owned)
        tp = min(self._owned, default=TopicPartition(self.topic, 0))
        partition = Partition(self.topic_id, tp.partition)
        return gap.created_anew(
            self.topic, partition, self._position(tp), offset_range(self._consumer, tp),
            before=self.topic_id, now=now, command=self.command,
        )  # fmt: skip

    # The client's thread

    def _give(self, given: Collection[TopicPartition]) -> None:
        for tp in given:
            # Without any position the client would raise before we can ask for one.
            self._consumer.seek(tp, 0)
        self._consumer.pause(*given)
        self._given |= set(given)
        # They may be partitions of a topic that was created again.
        self._looked_at = float("-inf")

    def _take(self, taken: Iterable[TopicPartition], tell: Callable[[list[Partition]], None]) -> None:
        self._given -= set(taken)
        self._gaps.forget(taken)
        gone = [self._owned.pop(tp) for tp in sorted(taken) if tp in self._owned]
        if gone:
            try:
                tell(gone)
            except Exception as error:
                # Inside the client's loop the error would be lost, or would end the loop.
                self._kept_error = error

    # State

    def _raise_kept_error(self) -> None:
        error, self._kept_error = self._kept_error, None
        if error:
            raise error

    def _where(self, partition: Partition) -> TopicPartition | None:
        tp = TopicPartition(self.topic, partition.number)
        return tp if self._owned.get(tp) == partition else None

    def _position(self, tp: TopicPartition, limit_s: float = LOOK_LIMIT_S) -> int | None:
        if tp not in self._owned:
            return None
        position: int | None = None
        # After a change of leader the client asks the broker, which may be away.
        with suppress(kafka.errors.KafkaError):
            position = self._consumer.position(tp, timeout_ms=milliseconds(limit_s))
        return position
