"""What a Kafka source watches: whether the cluster answers, each partition flows, and its client works."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping

import structlog
from kafka import TopicPartition

from omdml.errors import ClientFailed, SourceRefused
from omdml.streams.kafka.options import KafkaOptions

# Seconds that a topic may be missing from a cluster that answers.
ABSENT_S = 10.0
# Shorter outages are not worth a line in the log.
OUTAGE_AFTER_S = 2.0
# A partition is stuck if this many checks, one a second, find that it has not moved: the first number counts if nothing
# else is delivered, the second under load.
STUCK_LOOKS = 10
STUCK_BUSY_LOOKS = 60
# A client that waits for this many seconds, for its group or for answers, may be broken.
WAIT_S = 60.0
CLIENTS_IN_A_ROW = 6
# A client that worked for this many seconds begins a new row of failures.
STEADY_S = 60.0
# Another process has a member's name if it is taken twice within STEADY_S, or this often within these seconds.
OFTEN, OFTEN_S = 5, 3600.0

log = structlog.get_logger(__name__)


class Outage:
    """Logs once that a cluster went out of reach, and once that it is back.

    Attributes
    ----------
    logged
        Whether the log says that the cluster is out of reach now.
    reached_at
        When the cluster answered a check last.
    """

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.logged = False
        self.reached_at = time.monotonic()

    def check_failed(self, why: str) -> None:
        """Log the outage, unless it began just now or was logged already."""
        if not self.logged and time.monotonic() - self.reached_at >= OUTAGE_AFTER_S:
            self.logged = True
            action = "trying again; nothing is lost meanwhile"
            log.warning("kafka_out_of_reach", servers=self.servers, reason=why, action=action)

    def check_succeeded(self) -> None:
        """Log the end of the outage, if there was one."""
        now = time.monotonic()
        if self.logged:
            self.logged = False
            log.info("kafka_back_in_reach", servers=self.servers, after_s=round(now - self.reached_at, 1))
        self.reached_at = now


class Absence:
    """Ends the process if its topic is missing from a cluster that answers, because waiting would not restore it."""

    def __init__(self, servers: str, topic: str) -> None:
        self.servers, self.topic = servers, topic
        self._since: float | None = None

    def note(self, missing: bool) -> None:
        """Note a check that the cluster answered; raises SourceRefused if the topic was missing for ``ABSENT_S``.

        Brokers that have just started may not know the topic for a moment.
        """
        if not missing:
            self._since = None
        elif self._since is None:
            self._since = time.monotonic()
            log.warning("topic_missing", topic=self.topic, servers=self.servers, action=f"ending in {ABSENT_S:.0f} s")
        elif time.monotonic() - self._since >= ABSENT_S:
            raise SourceRefused(
                f"topic {self.topic!r} is missing from Kafka at {self.servers}: it was deleted, or the cluster lost "
                "it. Restore it or create it again, then start this again"
            )


class Flow:
    """Finds partitions that a client stopped fetching (seen in kafka-python after odd metadata).

    Such a partition is behind its end and does not move from one check to the next. If the client delivers nothing
    else, that is reported soon. Under load a partition may have to wait for its turn, so it takes longer. It takes as
    long while the client waits for its group: a new client would have all members share out the partitions once
    more. If machines are slow, the members would do that to each other for ever.

    A client may also wait without any stuck partition: for its group if it has no partition, or for the topic's ends or
    its first positions. If brokers were frozen, some clients wait for five minutes, or for ever.
    """

    def __init__(self) -> None:
        self._idle = False
        # Since when checks find the client waiting, with nothing delivered in between.
        self._waiting_since: float | None = None
        # For each partition: its position, how many checks found it there, and how many of these were idle.
        self._still: dict[TopicPartition, tuple[int, int, int]] = {}

    def delivered(self, partitions: Collection[TopicPartition]) -> None:
        """Note that these partitions delivered records, so they flow, even if the reader seeks back."""
        if partitions:
            self._idle, self._waiting_since = False, None
        for tp in partitions:
            self._still.pop(tp, None)

    def look(self, progress: Mapping[TopicPartition, tuple[int, int]], waiting: bool = False) -> list[TopicPartition]:
        """Note positions and ends as far as they are known, and if the client waits; returns what is stuck."""
        before, idle = self._still, self._idle and not waiting
        self._waiting_since = (self._waiting_since or time.monotonic()) if waiting and not progress else None
        self._idle = True
        self._still = {}
        for tp, (position, end) in progress.items():
            if position < end:
                last, looks, quiet = before.get(tp, (position, 0, 0))
                moved = last != position
                self._still[tp] = (position, 1, 0) if moved else (position, looks + 1, quiet + 1 if idle else 0)
        return [tp for tp, (_, looks, quiet) in self._still.items() if quiet >= STUCK_LOOKS or looks > STUCK_BUSY_LOOKS]

    def has_waited_long(self) -> bool:
        """Whether the client has waited for longer than a group takes. After a True, the time is counted from zero."""
        now = time.monotonic()
        if self._waiting_since is None or now - self._waiting_since < WAIT_S:
            return False
        self._waiting_since = now
        return True


class Failures:
    """Decides if a new client is made, and when, if one failed in a way that no outage explains."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._failed_at = float("-inf")
        self._name_taken_at: deque[float] = deque(maxlen=OFTEN)

    def name_taken(self, group: str, name: str | None, error: Exception) -> None:
        """Log that the cluster gave a member's name to another one; raises SourceRefused if that happens again soon.

        A broker that was frozen can handle an old request of this same process after a newer one, and then takes them
        for two processes. If the name is taken again soon after a new client took it back, another process has it. On
        slow machines, two processes take the name from each other more slowly, so it also counts how often.
        """
        taken_at, now = self._name_taken_at, time.monotonic()
        soon = bool(taken_at) and now - taken_at[-1] <= STEADY_S
        taken_at.append(now)
        if soon or (len(taken_at) == OFTEN and now - taken_at[0] <= OFTEN_S):
            raise SourceRefused(
                f"another process took the place of member {name!r} in group {group!r}: give every process a "
                "log.member of its own"
            ) from error
        action = "joining once more; ending if that happens again soon, or often"
        log.warning("member_name_taken", member=name, action=action)

    def wait(self) -> bool:
        """Wait before another client is made, twice as long each time; False, without waiting, after too many."""
        now = time.monotonic()
        self._in_a_row = 1 if now - self._failed_at > STEADY_S else self._in_a_row + 1
        if self._in_a_row >= CLIENTS_IN_A_ROW:
            return False
        time.sleep(0.25 * 2**self._in_a_row)
        self._failed_at = time.monotonic()
        return True

    def reader_failed(self, topic: str, options: KafkaOptions, error: Exception) -> None:
        """Log the failure of a reader's client, and wait; raises ClientFailed after too many failures in a row."""
        what = f"{type(error).__name__}: {options.redact(str(error))}"
        log.error("kafka_client_failed", topic=topic, error=what, action="making a new client", exc_info=True)
        if not self.wait():
            raise ClientFailed(
                f"topic {topic!r} at {options.servers}: one client after the other fails: {what}; "
                "start this again, and if that does not help, see the broker's log"
            ) from error
