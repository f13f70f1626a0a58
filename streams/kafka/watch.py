"""What a Kafka source watches once a second: the way to the cluster, and the flow of each partition."""

from __future__ import annotations

import time
from collections.abc import Mapping

import structlog
from kafka import TopicPartition

OUTAGE_AFTER_S = 2.0  # shorter ones are not worth a line in the log
STUCK_LOOKS = 10

log = structlog.get_logger(__name__)


class Outage:
    """Says once that a cluster went out of reach, and once that it is back.

    Attributes
    ----------
    told
        Whether an outage goes on that was logged.
    """

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.told = False
        self._reached_at = time.monotonic()

    def goes_on(self, why: str) -> None:
        """A look failed."""
        if not self.told and time.monotonic() - self._reached_at >= OUTAGE_AFTER_S:
            self.told = True
            log.warning("kafka_out_of_reach", servers=self.servers, why=why)

    def is_over(self) -> None:
        """A look succeeded."""
        now = time.monotonic()
        if self.told:
            self.told = False
            log.info("kafka_back_in_reach", servers=self.servers, after_s=round(now - self._reached_at, 1))
        self._reached_at = now


class Flow:
    """Finds partitions that a client stopped fetching (seen in kafka-python after odd metadata).

    Such a partition is behind its end and does not move, look after look, although the client has nothing else to
    deliver. Under load a partition may well wait for its turn, so only idle looks in a row count.
    """

    def __init__(self) -> None:
        self._idle = False
        self._still: dict[TopicPartition, tuple[int, int]] = {}

    def delivered(self) -> None:
        """Records came."""
        self._idle = False

    def look(self, progress: Mapping[TopicPartition, tuple[int, int]]) -> list[TopicPartition]:
        """Take note of positions and ends; answers the partitions that are stuck."""
        before = self._still if self._idle else {}
        self._idle = True
        self._still = {}
        for at, (position, end) in progress.items():
            if position < end:
                last, looks = before.get(at, (position, 0))
                self._still[at] = (position, looks + 1 if last == position else 1)
        return [at for at, (_, looks) in self._still.items() if looks > STUCK_LOOKS]
