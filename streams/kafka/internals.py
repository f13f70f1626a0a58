"""Everything that omdml takes from inside kafka-python, or replaces in it, each with its reason. No other file does.

For each part, tests/streams/kafka/test_internals.py shows what the public interface lacks (for ``try_to_connect``:
tests/integration/kafka/test_security.py). If a later kafka-python has it, that test fails, and the part can be removed
from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from hashlib import sha256
from typing import Any

import kafka.errors
import numpy as np
from kafka import TopicPartition
from kafka.consumer import fetcher
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.record import memory_records
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch
from kafka.record.util import decode_varint
from kafka.structs import OffsetAndMetadata

from omdml.feedback import TooLarge
from omdml.streams.kafka.reading.batches import PlainRecord, PolledRecord, Unreadable
from omdml.streams.kafka.reading.expansion import MAX_EXPANDED_BYTES, too_large

# Records that a kernel locates in one call: the places of a record take 300 bytes while they are numbers of Python.
AT_ONCE = 1000
# The record's length, its attributes, and how far its time and its offset are from those of the batch's first record.
FIELDS_BEFORE_KEY = 4
# A producer's thread drops its records within milliseconds.
DROPPED_WITHIN_S = 1.0


# connecting
def make_client(kind: Callable[..., Any], **options: Any) -> Any:
    """Make a client of this kind. If that fails, whatever it opened is closed.

    kafka-python's own constructors leave a thread and five open files behind if they fail, which happens again and
    again while a cluster is away.
    """
    opened: list[Any] = []

    def remembered(**settings: Any) -> Any:
        opened.append(KafkaNetClient(**settings))
        return opened[-1]

    try:
        return kind(**options, kafka_client=remembered)
    except BaseException:
        for client in opened:
            client.close()
        raise


def try_to_connect(limit_s: float, **options: Any) -> None:
    """Connect to a broker once, and log in. Raises the error of the first attempt.

    The client itself keeps trying until its time is up, and then says only that it could not connect.
    """
    net = NetworkSelector()
    manager = KafkaConnectionManager(net, **options)
    try:
        net.run(manager.get_connection("bootstrap-0", timeout_ms=limit_s * 1000))
    finally:
        manager.close()
        net.close()


def _data_before_end(receive: Callable[[Any], tuple[bytes, Any]]) -> Callable[[Any], tuple[bytes, Any]]:
    """Receive bytes without the end that came with them. The socket stays at its end, so the next call reports it."""

    @wraps(receive)
    def received(transport: Any) -> tuple[bytes, Any]:
        data, end = receive(transport)
        return data, None if data else end

    return received


# Brokers refuse a password by an answer, and then close the connection. The client would throw away an answer that
# arrives together with the end, and a refusal would look like a connection that was cut.
for transport in (KafkaTCPTransport, KafkaSSLTransport):
    transport._sock_recv = _data_before_end(transport._sock_recv)


# reading
class RecordBatch(DefaultRecordBatch):  # type: ignore[misc]  # kafka-python has no types
    """A batch whose header names may be any bytes, because clients in C send such names. Its errors say where it ends.

    A batch that would become too large when it is decompressed is not damaged: its sender wrote it so. Each of its
    records is replaced by one that cannot be learned (:class:`~omdml.feedback.TooLarge`), and becomes a dead letter.
    """

    __slots__ = ("_too_large",)

    def __init__(self, buffer: bytes) -> None:
        super().__init__(buffer)
        self._too_large: TooLarge | None = None

    def validate_crc(self) -> bool:
        """True; raises Unreadable if the checksum says otherwise."""
        if not super().validate_crc():
            raise self._unreadable("its checksum does not fit")
        return True

    @property
    def _without_holes(self) -> bool:
        """Whether every offset of the batch has a record, as its header says; the header may be what is damaged."""
        return bool(0 < self.records_count == self.last_offset_delta + 1)

    def _unreadable(self, why: str) -> Unreadable:
        return Unreadable(why, self.next_offset if self._without_holes else self.base_offset + 1)

    def _maybe_uncompress(self) -> None:
        if self._decompressed or self._too_large is not None or not self.compression_type:
            return
        try:
            data = memoryview(self._buffer)[self._pos :]
            if too_large(self.compression_type, data):
                self._pass_over(data)
            else:
                super()._maybe_uncompress()
        except (kafka.errors.UnsupportedCodecError, Unreadable):
            raise
        except Exception as error:
            # Every codec raises errors of its own.
            raise self._unreadable(f"it cannot be decompressed: {error!r}") from error

    def _pass_over(self, data: memoryview) -> None:
        """Replace each record of this compressed batch by one that says that the batch is too large."""
        size = f"its {len(data):,} bytes become more than {MAX_EXPANDED_BYTES:,} when they are decompressed"
        if not self._without_holes:
            raise self._unreadable(size)
        self._too_large = TooLarge(
            f"in a batch that is too large to be read: {size} (sha256 {sha256(data).hexdigest()}); have its sender "
            "write smaller batches".encode()
        )

    def __iter__(self) -> Any:
        self._maybe_uncompress()
        return self if self._too_large is not None or self.is_control_batch else self._plain_records()

    def _plain_records(self) -> Iterator[Any]:
        """The records. Those without headers are found by a kernel: a backlog is mostly these.

        All other records, and what follows the last one, are left to ``next``, which begins where the record begins.
        """
        # numba takes half a second to load. Routers and commands start without it.
        from omdml.kernels.kafka_records import COLUMNS, records_without_headers

        # mypy would take assignments for new attributes, which a class with slots cannot have.
        batch: Any = self
        data = bytes(self._buffer)
        numbers = np.frombuffer(data, np.uint8)
        table = np.empty((AT_ONCE, COLUMNS), np.int64)
        first_offset, first_time, kind = self.base_offset, self.first_timestamp, self.timestamp_type
        # The broker's time holds for the whole batch; a sender's time is counted from the first record's.
        logged_at = self.max_timestamp if kind == self.LOG_APPEND_TIME else None
        begin, index = batch._pos, 0
        while True:
            rows = table[: max(0, self.records_count - index)]
            count, begin = records_without_headers(numbers, begin, rows)
            for length, later, offset, key, key_end, value, value_end in table[:count].tolist():
                yield PlainRecord(
                    length, first_offset + offset, first_time + later if logged_at is None else logged_at, kind,
                    data[key:key_end] if key >= 0 else None, data[value:value_end] if value >= 0 else None,
                )  # fmt: skip
            index += count
            batch._pos, batch._next_record_index = begin, index
            if count == AT_ONCE:
                continue
            try:
                other = next(self)
            except StopIteration:
                return
            yield other
            begin, index = batch._pos, index + 1

    def __next__(self) -> Any:
        if self._too_large is not None:
            return self._next_too_large(self._too_large)
        try:
            return super().__next__()
        except kafka.errors.CorruptRecordError as error:
            if not isinstance(error.__context__, UnicodeDecodeError):
                raise self._unreadable(str(error)) from error
            try:
                _make_readable(self._buffer, self._pos)
            except (ValueError, IndexError):
                raise self._unreadable(str(error)) from error
            return next(self)

    def _next_too_large(self, value: TooLarge) -> DefaultRecord:
        if self._next_record_index >= self.records_count:
            raise StopIteration
        offset = self.base_offset + self._next_record_index
        self._next_record_index += 1
        return DefaultRecord(len(value), offset, self.max_timestamp, self.timestamp_type, None, value, [])


def _make_readable(buffer: bytearray, index: int) -> None:
    """Put question marks for what is not UTF-8 in the header names of the record that begins there."""
    for _ in range(FIELDS_BEFORE_KEY):
        _, index = decode_varint(buffer, index)
    for _ in ("key", "value"):
        index = _behind(buffer, index)
    headers, index = decode_varint(buffer, index)
    for _ in range(headers):
        length, begin = decode_varint(buffer, index)
        name = buffer[begin : begin + length]
        # It stays as long as it was, because the record's length is checked.
        buffer[begin : begin + length] = name.decode(errors="ignore").encode().ljust(len(name), b"?")
        index = _behind(buffer, begin + length)


def _behind(buffer: bytearray, index: int) -> int:
    """The end of a field of bytes whose length stands here. A length of -1 means that there is no field."""
    length, begin = decode_varint(buffer, index)
    return int(begin + max(length, 0))


# kafka-python's own class refuses header names that are not UTF-8, which clients in C send; it expands a compressed
# batch of any size; and its errors do not say where the batch ends.
memory_records.DefaultRecordBatch = RecordBatch
# Its own named tuples take 0.7 us each to make.
fetcher.ConsumerRecord = PolledRecord


def drop_batch(consumer: Any) -> TopicPartition:
    """Drop what is left of the batch whose error poll just raised; returns its partition.

    No error names the partition, and poll tries the same batch again without end.
    """
    unread = consumer._fetcher._next_partition_records
    unread.drain()
    return unread.topic_partition


def position(consumer: Any, tp: TopicPartition) -> OffsetAndMetadata | None:
    """The position of a consumer with its leader's epoch; None while it has none. The public one tells no epoch."""
    state = consumer._subscription.assignment.get(tp)
    return None if state is None else state.position


def put_position(consumer: Any, tp: TopicPartition, offset: int, epoch: int) -> None:
    """Give a consumer back the epoch of its position, which it forgets with every seek and every empty answer."""
    consumer._subscription.assignment[tp].position = OffsetAndMetadata(offset, "", epoch)


def seek(consumer: Any, tp: TopicPartition, offset: int, epoch: int) -> None:
    """Make a consumer continue there, once the cluster has confirmed the epoch. The public method takes no epoch."""
    consumer._subscription.assignment[tp].seek(OffsetAndMetadata(offset, "", epoch))


def refresh_metadata(consumer: Any) -> None:
    """Make a consumer refresh its metadata now. It would notice added partitions within five minutes otherwise."""
    consumer._cluster.request_update()


def topic_id(consumer: Any, topic: str) -> Any:
    """The identity of the topic that a consumer reads, refreshed before its records are handed out; None if unknown."""
    return consumer._cluster.topic_id(topic)


class _JoinAnswer:
    """The answer to a join that a poll began. It counts as open until a later poll has read it."""

    def __init__(self, coordinator: Any, answer: Any) -> None:
        self._coordinator, self._answer = coordinator, answer
        self.add_callback, self.add_errback = answer.add_callback, answer.add_errback

    @property
    def is_done(self) -> bool:
        """Whether a poll joins again: a member that left or was expelled meanwhile does."""
        return self._answer.is_done and not self._coordinator.rebalance_in_progress()


def go_on_joining(consumer: Any) -> None:
    """Make the next poll continue a join that was interrupted when the last poll ended.

    A leader that rejoins because partitions were added takes the join for done once it has shared them out. Then no
    poll waits for the cluster's answer, and the member is expelled. And an answer that comes between two polls is
    thrown away: the next poll joins again, and so the whole group, perhaps without end if members work between polls.
    """
    coordinator = consumer._coordinator
    if coordinator.rejoining:
        coordinator.request_rejoin()
    answer = coordinator._join_task
    if answer is not None and not isinstance(answer, _JoinAnswer):
        coordinator._join_task = _JoinAnswer(coordinator, answer)


def share_again(consumer: Any) -> None:
    """Have the next poll ask the group for another round of sharing out."""
    consumer._coordinator.request_rejoin()


def wait_in_polls(consumer: Any) -> None:
    """Make a poll wait for records, even while a heartbeat is not answered.

    Otherwise it would try 5,000 times a second, and keep a dozen objects of each try until its fetch is given up. The
    client's own thread sends heartbeats.
    """
    consumer._coordinator.time_to_next_poll = lambda: float("inf")


def hand_out_at_once(consumer: Any) -> None:
    """Make a poll look again, instead of sleeping, if records came after it looked for them.

    A poll looks for records that have come, asks for more, and waits for the fetches that are on their way. If the last
    of these is answered between the look and the request, nothing is on its way, and nothing more is asked for: the
    poll would sleep for up to 0.1 s, although records are there.
    """
    own_fetcher = consumer._fetcher
    fetch_records = own_fetcher.fetch_records

    def fetched(*arguments: Any, **options: Any) -> tuple[Any, bool]:
        records, is_idle = fetch_records(*arguments, **options)
        return records, is_idle and not own_fetcher._completed_fetches

    own_fetcher.fetch_records = fetched


def is_joining(consumer: Any) -> bool:
    """Whether the group shares out its partitions again, and this member waits for its own: no poll fetches then."""
    coordinator = consumer._coordinator
    return bool(coordinator.rejoining or coordinator.need_rejoin())


def has_lost_its_name(consumer: Any) -> bool:
    """Whether a heartbeat heard that another process has this member's name.

    Then this member sends no more heartbeats, and no poll says why.
    """
    coordinator = consumer._coordinator
    with coordinator._lock:
        is_alive = coordinator._heartbeat_enabled or is_joining(consumer)
        return bool(coordinator.group_instance_id and coordinator.stable() and not is_alive)


def forget_offset_answers(consumer: Any) -> None:
    """Make the client ask for a group's offsets again.

    A question that ran out of time is kept, and its old answer answers the next one: events would be routed twice.
    """
    consumer._coordinator._offset_fetch_futures.clear()


# writing
def append(
    producer: Any, place: TopicPartition, timestamp_ms: int | None, key: bytes | None, value: bytes,
    headers: Sequence[tuple[str, bytes]],
) -> Any:  # fmt: skip
    """Add a record to a partition that this producer has written to already; returns its future.

    ``send`` looks topic, partition and sizes up again for each record: that is half of its time.
    """
    future, full, new, _ = producer._accumulator.append(place, timestamp_ms, key, value, list(headers))
    if full or new:
        producer._sender.wakeup()
    return future


def place_of(sent: Any) -> TopicPartition:
    """The partition of a record that is on its way: its future tells it only after it was written."""
    place: TopicPartition = sent._produce_future.topic_partition
    return place


def drop_producer(producer: Any) -> None:
    """Close a producer, and drop the records on their way.

    ``close`` alone would flush first. If that takes too long, it gives up: the producer's thread stays, and writes
    these records later, when they may have been sent again.
    """
    producer._sender.force_close()
    with suppress(kafka.errors.KafkaError):
        producer.close(timeout=DROPPED_WITHIN_S)


# writing in transactions: the producer's own methods wait without end while a cluster is away
class Transaction:
    """The transactions of one producer, step by step: whoever calls decides how long to wait for a step's result."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._manager = producer._transaction_manager

    def initialize(self) -> Any:
        """Fence the producer of the same name before this one; returns a result to wait for, as the next three do."""
        return self._started(self._manager.initialize_transactions())

    def send_offsets(self, offsets: Mapping[Any, Any], member: Any) -> Any:
        """Add a group's offsets to the transaction."""
        return self._started(self._manager.send_offsets_to_transaction(dict(offsets), member))

    def commit(self) -> Any:
        return self._started(self._manager.begin_commit())

    def abort(self) -> Any:
        return self._started(self._manager.begin_abort())

    @contextmanager
    def sending_at_once(self) -> Iterator[None]:
        """Send everything that waits now. ``flush`` does not say which records failed, and cannot be interrupted."""
        self._producer._accumulator.begin_flush()
        self._producer._sender.wakeup()
        try:
            yield
        finally:
            self._producer._accumulator._flushes_in_progress.decrement()

    def _started(self, result: Any) -> Any:
        """Have the producer's thread take the step now; returns the step's result."""
        self._producer._sender.wakeup()
        return result
