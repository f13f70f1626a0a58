"""What a topic looks like from outside: how far its partitions reach, and who reads them."""

from __future__ import annotations

from typing import NamedTuple

from omdml.streams.protocols.log import Partition


class Extent(NamedTuple):
    """One partition: the first offset it holds, its end, and what the group committed in it."""

    partition: Partition
    begin: int
    end: int
    committed: int | None


class Member(NamedTuple):
    """A worker in a group: its ``log.member`` (else its client's name), its host, numbers of the partitions it owns."""

    name: str
    host: str
    partitions: list[int]

    def __str__(self) -> str:
        return f"{self.name} at {self.host}"
