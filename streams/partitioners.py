"""Partitioners: from a record's key to the partition that a Kafka client sends it to."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from kafka.partitioner.default import murmur2

PartitionOf = Callable[[bytes, int], int]
"""From a key and the number of partitions to the number of one."""


def by_murmur2(key: bytes, partitions: int) -> int:
    """Kafka's own clients choose this partition (librdkafka: ``partitioner=murmur2_random``)."""
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


def by_crc32(key: bytes, partitions: int) -> int:
    """Clients built on librdkafka choose this partition unless they are told otherwise (``consistent_random``)."""
    return zlib.crc32(key) % partitions


PARTITIONERS: dict[str, PartitionOf] = {"murmur2": by_murmur2, "crc32": by_crc32}
