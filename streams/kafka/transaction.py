"""Several records in several topics, all of them or none."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from kafka import KafkaProducer

from streams.kafka.options import KafkaOptions, connecting, translated
from streams.kafka.sink import KeyPartitioner

TIMEOUT_MS = 20_000


class KafkaTransactions:
    """A producer of transactions; the cluster lets one of each ``name`` live, and fences the one before.

    As a context manager each block is one transaction: committed at its end, aborted where it raises.

    Raises SourceError where the cluster is out of reach, or refuses.
    """

    def __init__(self, options: KafkaOptions, name: str, partitioner: str = "murmur2") -> None:
        self.options = options
        with connecting(options):
            self._producer: Any = KafkaProducer(
                **options.client(),
                transactional_id=name,
                acks="all",
                enable_idempotence=True,
                partitioner=KeyPartitioner(partitioner),
                delivery_timeout_ms=TIMEOUT_MS,
                request_timeout_ms=TIMEOUT_MS // 2,
                allow_auto_create_topics=False,
                metrics_enabled=False,
            )
            self._producer.init_transactions()

    def __enter__(self) -> Self:
        with translated(self.options, "beginning a transaction"):
            self._producer.begin_transaction()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with translated(self.options, "ending a transaction"):
            if kind is None:
                self._producer.commit_transaction()
            else:
                self._producer.abort_transaction()

    def send(self, topic: str, value: bytes, key: str, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        """Add one record to the open transaction."""
        with translated(self.options, f"sending to topic {topic!r}"):
            self._producer.send(topic, value, key.encode(), list(headers))

    def close(self) -> None:
        """Let go of the cluster."""
        with translated(self.options, "closing"):
            self._producer.close(timeout=1.0)
