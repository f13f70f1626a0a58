"""Everything that omdml takes from inside kafka-python, each with its reason. No other file uses private members.

For each function, tests/streams/kafka/test_internals.py shows what the public interface lacks. If a later kafka-python
has it, that test fails, and the function can be removed from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from kafka import TopicPartition
from kafka.consumer import fetcher
from kafka.net.compat import KafkaNetClient
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.record import memory_records
from kafka.structs import OffsetAndMetadata


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


def read_answers_before_close() -> None:
    """Make the client read what a broker says just before it closes a connection.

    Brokers refuse a password by an answer, and then close the connection. The client would throw away an answer that
    arrives together with the end.
    """
    for kind in (KafkaTCPTransport, KafkaSSLTransport):
        if not hasattr(kind._sock_recv, "__wrapped__"):
            kind._sock_recv = _data_before_end(kind._sock_recv)


def _data_before_end(receive: Callable[[Any], tuple[bytes, Any]]) -> Callable[[Any], tuple[bytes, Any]]:
    """Receive bytes without the end that came with them. The socket stays at its end, so the next call tells it."""

    @wraps(receive)
    def received(transport: Any) -> tuple[bytes, Any]:
        data, end = receive(transport)
        return data, None if data else end

    return received


# reading
def make_batches_of(kind: type) -> None:
    """Make the client parse fetched bytes with this class of batches.

    kafka-python's own class refuses header names that are not UTF-8, which clients in C send; it expands a compressed
    batch of any size; and its errors do not say where the batch ends.
    """
    memory_records.DefaultRecordBatch = kind


def make_records_of(kind: Callable[..., Any]) -> None:
    """Make the client hand out records of this class. Its own named tuples take 0.7 us each to make."""
    fetcher.ConsumerRecord = kind


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
    """The identity of the topic that a consumer reads, as it last heard; None if it has not heard.

    Only this one is refreshed before records of a topic made again are handed out. The admin client would be asked, and
    cost a round trip, for every poll.
    """
    return consumer._cluster.topic_id(topic)


def go_on_joining(consumer: Any) -> None:
    """Make the next poll continue a rejoin that was interrupted when the last poll ended.

    A leader that rejoins because partitions were added takes that for done as soon as it has shared them out. If a poll
    ends before the cluster has answered, no later one waits for the answer, and the member is expelled.
    """
    coordinator = consumer._coordinator
    if coordinator.rejoining:
        coordinator.request_rejoin()


def is_joining(consumer: Any) -> bool:
    """Whether the group shares out its partitions again, and this member waits for its own: no poll fetches then."""
    coordinator = consumer._coordinator
    return bool(coordinator.rejoining or coordinator.need_rejoin())


def forget_offset_answers(consumer: Any) -> None:
    """Make the client ask for a group's offsets again.

    A question that ran out of time is kept, and what comes of it answers the next question, however old it is by then:
    events would be routed twice.
    """
    consumer._coordinator._offset_fetch_futures.clear()


# writing
def append(
    producer: Any,
    place: TopicPartition,
    timestamp_ms: int | None,
    key: bytes | None,
    value: bytes,
    headers: Sequence[tuple[str, bytes]],
) -> Any:
    """Add a record to a partition that this producer has written to already; returns its future.

    ``send`` looks topic, partition and sizes up again for each record: that is half of its time.
    """
    future, full, new, _ = producer._accumulator.append(place, timestamp_ms, key, value, list(headers))
    if full or new:
        producer._sender.wakeup()
    return future


def place_of(sent: Any) -> TopicPartition:
    """The partition of a record that is on its way: its future tells only once it was written."""
    place: TopicPartition = sent._produce_future.topic_partition
    return place


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

    def drop_unsent(self) -> None:
        """Make the producer drop all records on their way. ``close`` would flush first, without a time limit."""
        self._producer._sender.force_close()

    def _started(self, result: Any) -> Any:
        """Have the producer's thread take the step now; returns the step's result."""
        self._producer._sender.wakeup()
        return result
