"""A Kafka topic as a sink of events: feedback or dead letters."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import kafka.errors
from kafka import KafkaProducer, TopicPartition
from kafka.partitioner.abc import Partitioner
from kafka.partitioner.default import DefaultPartitioner

from omdml.errors import SourceError, SourceRefused
from omdml.streams.kafka import internals
from omdml.streams.kafka import topic as kafka_topic
from omdml.streams.kafka.options import KafkaOptions, connecting, translated
from omdml.streams.partitioners import PARTITIONERS
from omdml.streams.protocols.log import Outgoing

# A click waits so long for others that may share its request.
LINGER_MS = 1
BATCH_BYTES = 256 << 10
# The client itself waits for metadata alone. It does not bound its memory, so the sink does.
METADATA_LIMIT_S = 2.0
# Acknowledged events are dropped after this many sends. Many of them would keep the garbage collector busy: 56 k
# instead of 70 k events/s.
DROP_EVERY = 256
# Added partitions are known after this at the latest; the client's own default is five minutes.
METADATA_AGE_S = 10.0
# How many keys the sink remembers the partition of.
KNOWN_KEYS = 10_000
# What the client keeps of an event beside its bytes.
EVENT_OVERHEAD_BYTES = 512


class Sent(NamedTuple):
    """An event that was handed to the producer and is not acknowledged yet."""

    acknowledgement: Any
    key: str | None
    size: int
    # Seconds of the monotonic clock.
    sent_at: float


class KafkaSink:
    """A producer of one topic: acknowledged by all replicas, never doubled by its own retries, in order for each key.

    Parameters
    ----------
    partitioner
        How a key decides the partition: a name in :data:`omdml.streams.partitioners.PARTITIONERS`.
    buffer_bytes
        Memory for events that are not acknowledged yet; a full buffer makes :meth:`send` wait, then raise.
    block_s
        How long :meth:`send` waits for room at most.
    delivery_s
        An event that is not acknowledged for so long has failed: :meth:`flush` raises the error.

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
        partitioner: str = "murmur2",
        buffer_bytes: int = 64 << 20,
        block_s: float = 1.0,
        delivery_s: float = 20.0,
    ) -> None:
        self.options = options
        self.topic = topic
        self.partitioner = partitioner
        self.buffer_bytes = buffer_bytes
        self.block_s = block_s
        self._on_the_way: deque[Sent] = deque()
        self._bytes = 0
        self._sent_since_drop = 0
        self._failures = 0
        self._first_failure = ""
        # Whether the first failure was that we lack a right.
        self._refused = False
        # The partition of each key that was sent, by this number of partitions.
        self._places: dict[bytes | None, TopicPartition] = {}
        self._partitions = 0
        self._closed = False
        self._delivery_s = delivery_s
        self.max_message_bytes = kafka_topic.message_limit(options, topic)
        self._producer: Any = self._connect()

    def send(self, value: bytes, key: str | None = None, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        """Queue one event.

        Raises SourceError if the buffer stays full for ``block_s``, or the event is larger than a request may be.
        """
        size = len(value) + EVENT_OVERHEAD_BYTES
        self._sent_since_drop += 1
        if self._sent_since_drop == DROP_EVERY:
            self._drop_finished(deadline=0.0)
        if self._bytes + size > self.buffer_bytes:
            self._make_room(size)
        if self._producer is None:
            self._producer = self._connect()
        try:
            sent = self._hand_over(value, key.encode() if key is not None else None, headers)
        except kafka.errors.KafkaError as error:
            self._drop_finished(deadline=0.0)
            if isinstance(error, kafka.errors.KafkaTimeoutError) and not self._on_the_way:
                # The client has forgotten the topic. A new one says so if it was deleted.
                self._drop_producer()
            with translated(self.options, f"sending to topic {self.topic!r}"):
                raise
        self._on_the_way.append(Sent(sent, key, size, time.monotonic()))
        self._bytes += size

    def _hand_over(self, value: bytes, key: bytes | None, headers: Sequence[tuple[str, bytes]]) -> Any:
        """Give a record to the producer: a small one with a known key in half the time of others."""
        partitions = self._producer.partitions_for(self.topic)
        if len(partitions) != self._partitions or len(self._places) > KNOWN_KEYS:
            self._places.clear()
            self._partitions = len(partitions)
        if key in self._places and not headers and len(value) < BATCH_BYTES:
            return internals.append(self._producer, self._places[key], None, key, value, headers)
        sent = self._producer.send(self.topic, value, key, list(headers))
        # A record that failed at once is in no batch, so its partition is unknown.
        if key is not None and not sent.is_done:
            self._places[key] = internals.place_of(sent)
        return sent

    def send_many(self, events: Sequence[Outgoing]) -> None:
        """Queue events; raises SourceError as :meth:`send` does."""
        for event in events:
            self.send(*event)

    def flush(self, timeout_s: float = 30.0) -> None:
        """Return when everything sent is acknowledged by all replicas.

        Raises SourceError with the first event that failed since the last flush: SourceRefused if we lack the right to
        write. If none failed, but some are not acknowledged after ``timeout_s``, it raises SourceError with their
        number; those may still arrive. Once an event has failed, all events on their way are given up, and the next
        event makes a new producer, because the client never recovers from a batch that expired.
        """
        self._drop_finished(time.monotonic() + timeout_s)
        failures, self._failures = self._failures, 0
        overdue = self._on_the_way and time.monotonic() - self._on_the_way[0].sent_at > 2 * self._delivery_s
        if failures or overdue:
            error = self._failed(failures + len(self._on_the_way))
            self._drop_producer()
            raise error
        if self._on_the_way:
            raise SourceError(
                f"No acknowledgement of {_events(len(self._on_the_way))} for topic {self.topic!r} at "
                f"{self.options.servers} after {timeout_s:g} s. It may still come: flush again before you send again"
            )

    def close(self) -> None:
        """Flush, and close the connection in any case. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self.flush()
        finally:
            if self._producer is not None:
                internals.drop_producer(self._producer)

    def _connect(self) -> Any:
        delivery_ms = int(self._delivery_s * 1000)
        with connecting(self.options):
            producer = internals.make_client(
                KafkaProducer,
                **self.options.client(),
                acks="all",
                enable_idempotence=True,
                partitioner=KeyPartitioner(self.partitioner),
                linger_ms=LINGER_MS,
                batch_size=BATCH_BYTES,
                max_block_ms=int(METADATA_LIMIT_S * 1000),
                metadata_max_age_ms=int(METADATA_AGE_S * 1000),
                request_timeout_ms=delivery_ms // 2,
                delivery_timeout_ms=delivery_ms,
                allow_auto_create_topics=False,
                metrics_enabled=False,
            )
            try:
                # Fetch the topic's metadata now, because otherwise the first send would wait for them.
                producer.partitions_for(self.topic)
            except BaseException as error:
                producer.close(timeout=0)
                if isinstance(error, kafka.errors.KafkaTimeoutError):
                    # This says so if the topic is missing.
                    kafka_topic.message_limit(self.options, self.topic)
                raise
        return producer

    def _drop_producer(self) -> None:
        self._on_the_way.clear()
        self._bytes = 0
        internals.drop_producer(self._producer)
        self._producer = None
        self._refused = False

    def _make_room(self, size: int) -> None:
        deadline = time.monotonic() + self.block_s
        self._drop_finished(deadline, down_to=max(0, self.buffer_bytes // 2 - size))
        if self._bytes + size > self.buffer_bytes:
            if self._refused:
                # The buffer stays full, because nothing of it is ever written.
                raise self._failed(len(self._on_the_way))
            raise SourceError(
                f"{_events(len(self._on_the_way))} on the way to topic {self.topic!r} at {self.options.servers}, the "
                f"buffer of {self.buffer_bytes} bytes is full; send this one again later, when the cluster keeps up"
            )

    def _drop_finished(self, deadline: float, down_to: int = 0) -> None:
        """Drop acknowledged and failed events from the buffer, oldest first, until few bytes are left or time is up."""
        self._sent_since_drop = 0
        # After an event has failed, those behind it are stuck.
        while self._on_the_way and self._bytes > down_to and not self._failures:
            if not self._is_over(self._on_the_way[0], deadline):
                return
            self._bytes -= self._on_the_way.popleft().size

    def _is_over(self, sent: Sent, deadline: float) -> bool:
        """Wait until the deadline for the outcome of this event; False if it is still unknown."""
        acknowledgement = sent.acknowledgement
        if not acknowledgement.is_done:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            # What comes next asks whether the time is up, or the event failed.
            with contextlib.suppress(kafka.errors.KafkaError):
                acknowledgement.get(timeout=left_s)
        if acknowledgement.failed():
            self._note_failure(sent, acknowledgement.exception)
        return bool(acknowledgement.is_done)

    def _note_failure(self, sent: Sent, error: kafka.errors.KafkaError) -> None:
        if not self._failures:
            event = f"{sent.size - EVENT_OVERHEAD_BYTES} bytes with key {sent.key!r}"
            self._first_failure = self.options.redact(f"{event}: {error}")
            # The error may be of another class, and only quote the refusal.
            self._refused = "AuthorizationFailed" in repr(error)
        self._failures += 1

    def _failed(self, count: int) -> SourceError:
        """The error about so many events that could not be written."""
        kind, advice = SourceError, "Send them again when the cluster is well"
        if self._refused:
            user = self.options.sasl_plain_username or "this client"
            kind, advice = (
                SourceRefused,
                f"Give {user} the rights (ACLs) that deploy/SECURITY.md lists, then send them again",
            )
        return kind(
            f"{_events(count)} for topic {self.topic!r} at {self.options.servers} could not be written. "
            f"The first: {self._first_failure}. {advice}"
        )


class KeyPartitioner:
    """A named partitioner; records without a key are spread as Kafka's clients do it."""

    def __init__(self, partitioner: str) -> None:
        self._standard = DefaultPartitioner()
        self._number = PARTITIONERS[partitioner]

    def partition(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: bytes, cluster: Any
    ) -> int:
        if serialized_key is None:
            chosen: int = self._standard.partition(topic, key, None, value, serialized_value, cluster)
            return chosen
        return self._number(serialized_key, len(cluster.partitions_for_topic(topic)))


# An untyped class cannot be inherited from under strict checking.
Partitioner.register(KeyPartitioner)


def _events(count: int) -> str:
    return f"{count} event{'s' * (count != 1)}"
