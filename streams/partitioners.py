"""Partitioners: from a record's key to the partition that a Kafka client sends it to."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable

from kafka.partitioner.default import murmur2

PartitionOf = Callable[[bytes, int], int]
"""From a key and the number of partitions to the number of one."""


def by_murmur2(key: bytes, partitions: int) -> int:
    """Kafka's own clients choose this partition (librdkafka: ``partitioner=murmur2_random``)."""
    return _murmur2(key) % partitions


@functools.lru_cache(maxsize=65_536)
def _murmur2(key: bytes) -> int:
    """The positive hash of a key. It is computed in pure Python, and keys are few: so it is remembered."""
    return int(murmur2(key) & 0x7FFFFFFF)


def by_crc32(key: bytes, partitions: int) -> int:
    """Clients built on librdkafka choose this partition unless they are told otherwise (``consistent_random``)."""
    return zlib.crc32(key) % partitions


PARTITIONERS: dict[str, PartitionOf] = {"murmur2": by_murmur2, "crc32": by_crc32}
