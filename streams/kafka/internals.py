"""Everything that omdml takes from inside kafka-python, or replaces in it, each with its reason.

The class that replaces its record batches is in record_batch.py. No other file reaches inside.

For each part, tests/streams/kafka/test_internals.py shows what the public interface lacks (for ``try_to_connect``:
tests/integration/kafka/test_security.py). If a later kafka-python has it, that test fails, and the part can be removed
from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any

import kafka.errors
from kafka import TopicPartition
from kafka.consumer import fetcher
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.record import memory_records
from kafka.structs import OffsetAndMetadata

from omdml.streams.kafka.reading.batches import PolledRecord
from omdml.streams.kafka.record_batch import RecordBatch

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


def wait_once(consumer: Any) -> None:
    """Make a poll wait for the client's own thread once, and hand out at once what came meanwhile.

    The client's own poll waits for its thread three times: to hear that the coordinator is known, to send fetches, and
    for an answer to one. Each time costs two switches of threads. And the last fetch may be answered after the poll
    looked for records and before it sends more. No fetch is sent for a partition whose answer waits, so nothing is on
    its way then: the client's own poll would sleep for up to 0.1 s, although records are there.
    """
    coordinator, own_fetcher = consumer._coordinator, consumer._fetcher
    find_coordinator, wait_for = coordinator.ensure_coordinator_ready, own_fetcher._manager.wait_for

    def ensure_coordinator_ready(timeout_ms: float | None = None) -> bool:
        # This only reads. The client's own question, coordinator_unknown(), may also forget who the coordinator is.
        node = coordinator.coordinator_id
        return (node is not None and consumer._client.connected(node)) or find_coordinator(timeout_ms=timeout_ms)

    async def send_and_wait(timeout_ms: float) -> bool:
        """Send fetches, and wait for an answer, unless one is there. Returns False if there is none to wait for."""
        await own_fetcher._send_fetches_async()
        on_their_way = [*own_fetcher._fetch_futures]
        if on_their_way and not own_fetcher._completed_fetches:
            answered = Future()
            for fetch in on_their_way:
                fetch.add_both(lambda _: answered.is_done or answered.success(None))
            with suppress(kafka.errors.KafkaTimeoutError):
                await wait_for(answered, timeout_ms)
        return bool(on_their_way or own_fetcher._completed_fetches)

    def fetch_records(max_records: int, update_offsets: bool, timeout_ms: float) -> tuple[Any, bool]:
        records, is_more_buffered = own_fetcher.fetched_records(max_records, update_offsets=update_offsets)
        if records:
            if not is_more_buffered:
                own_fetcher.send_fetches()
            return records, False
        is_busy = own_fetcher._manager.run(send_and_wait, timeout_ms)
        records, _ = own_fetcher.fetched_records(max_records, update_offsets=update_offsets)
        return records, not is_busy

    coordinator.ensure_coordinator_ready, own_fetcher.fetch_records = ensure_coordinator_ready, fetch_records


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
