"""Transactions: records in several topics, and the offsets they were read from, are written together or not at all."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import kafka.errors
from kafka import KafkaProducer

from omdml.streams.kafka import internals
from omdml.streams.kafka.options import KafkaOptions, connecting, translated
from omdml.streams.kafka.sink import METADATA_AGE_S, KeyPartitioner

TIMEOUT_S = 20.0
BATCH_BYTES = 256 << 10
SLICE_MS = 100
# Longer than it takes to fill a transaction. So batches grow until its end, which sends what waits.
LINGER_MS = 1000


class KafkaTransactions:
    """A producer of transactions; the cluster lets one of each ``name`` live, and fences the one before.

    As a context manager each block is one transaction: committed at its end, aborted if it raises.

    Parameters
    ----------
    partitioner
        How a key decides the partition: a name in :data:`omdml.streams.partitioners.PARTITIONERS`.
    timeout_s
        How long a step may take (being made, sending what a transaction holds, committing it).
    open_s
        The cluster aborts a transaction that is open for longer; until then nobody reads what comes behind it.
    batch_bytes
        What is sent to a partition at once, at most: not more than its topic takes.
    given_up
        Asked while a step waits. If it returns True, the step fails as if its time were up.

    Raises
    ------
    SourceError
        The cluster is out of reach, or refuses.
    """

    def __init__(
        self,
        options: KafkaOptions,
        name: str,
        partitioner: str = "murmur2",
        *,
        timeout_s: float = TIMEOUT_S,
        open_s: float = 60.0,
        batch_bytes: int = BATCH_BYTES,
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self.options = options
        self._timeout_s = timeout_s
        self._given_up = given_up
        self._sent: list[Any] = []
        self._places: dict[tuple[str, bytes | None], Any] = {}
        with connecting(options):
            self._producer: Any = internals.make_client(
                KafkaProducer,
                **options.client(),
                transactional_id=name,
                acks="all",
                enable_idempotence=True,
                partitioner=KeyPartitioner(partitioner),
                batch_size=batch_bytes,
                linger_ms=LINGER_MS,
                max_request_size=max(BATCH_BYTES << 2, batch_bytes << 1),
                delivery_timeout_ms=int(timeout_s * 1000),
                request_timeout_ms=int(timeout_s * 500),
                max_block_ms=int(timeout_s * 1000),
                transaction_timeout_ms=int(open_s * 1000),
                metadata_max_age_ms=int(METADATA_AGE_S * 1000),
                allow_auto_create_topics=False,
                metrics_enabled=False,
            )
            # The producer's own methods wait without end while a cluster is away, and nobody could stop this process.
            self._steps = internals.Transaction(self._producer)
            try:
                self._finish(self._steps.initialize(), "beginning to write in transactions")
            except BaseException:
                self.drop()
                raise

    def begin(self) -> None:
        self._sent.clear()
        # Forgotten with each transaction: the producer must register the partitions of each, and some may be new.
        self._places.clear()
        with translated(self.options, "beginning a transaction"):
            self._producer.begin_transaction()

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()
        else:
            with translated(self.options, "aborting a transaction"):
                self._finish(self._steps.abort(), "aborting a transaction")

    def send(
        self,
        topic: str,
        value: bytes,
        key: str | bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Add one record to the open transaction, in the partition of its key unless another one is given."""
        raw = key.encode() if isinstance(key, str) else key
        place = self._places.get((topic, raw)) if partition is None else None
        try:
            if place is None:
                sent = self._producer.send(topic, value, raw, list(headers), partition, timestamp_ms)
                if raw is not None and partition is None:
                    self._places[topic, raw] = internals.place_of(sent)
            else:
                sent = internals.append(self._producer, place, timestamp_ms, raw, value, headers)
        except kafka.errors.KafkaError:
            with translated(self.options, f"sending to topic {topic!r}"):
                raise
        self._sent.append(sent)

    def send_offsets(self, offsets: Mapping[Any, Any], member: Any) -> None:
        """Add a group's offsets to the open transaction, once all of its records are written.

        The cluster refuses this, and the whole transaction, if ``member`` is out of its group: another one may own its
        partitions already.
        """
        doing = "committing offsets in a transaction"
        with translated(self.options, doing):
            self._await_written()
            self._finish(self._steps.send_offsets(offsets, member), doing)

    def commit(self) -> None:
        """Commit the open transaction. After an error it is unknown whether it is committed, so drop this producer."""
        with translated(self.options, "committing a transaction"):
            self._await_written()
            self._finish(self._steps.commit(), "committing a transaction")

    def close(self) -> None:
        """Close the connection to the cluster."""
        with translated(self.options, "closing"):
            self._producer.close(timeout=1.0)

    def drop(self) -> None:
        """Close without waiting. The next producer of this name aborts the open transaction."""
        internals.drop_producer(self._producer)

    def _await_written(self) -> None:
        """Return once every record is written.

        The client itself would commit without a batch that ran out of time: it only fails the futures of its records.
        """
        if not self._sent:
            return
        deadline = time.monotonic() + self._timeout_s
        with self._steps.sending_at_once():
            for sent in self._sent:
                while not sent.is_done:
                    self._check(deadline, "sending the records of a transaction")
                    with contextlib.suppress(kafka.errors.KafkaTimeoutError):
                        sent.get(timeout=SLICE_MS / 1000)
                if sent.exception is not None:
                    raise sent.exception
        self._sent.clear()

    def _finish(self, result: Any, doing: str) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not result.wait(timeout_ms=SLICE_MS):
            self._check(deadline, doing)

    def _check(self, deadline: float, doing: str) -> None:
        if time.monotonic() > deadline or self._given_up():
            raise kafka.errors.KafkaTimeoutError(f"no answer while {doing}")
