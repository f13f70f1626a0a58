"""What the cluster says about a topic, asked once a second: its identity, its size, and how far it reaches."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import kafka.errors
import msgspec
import structlog
from kafka import TopicPartition

from omdml.errors import SourceError
from omdml.streams.kafka import topic as topics
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.reading.client_health import Absence, Outage
from omdml.streams.kafka.reading.consumer import milliseconds
from omdml.streams.kafka.reading.late_answers import Question

# Seconds between two checks.
LOOK_EVERY_S = 1.0
# Seconds to wait for an answer: the worker does nothing else meanwhile.
LOOK_LIMIT_S = 0.5
# Seconds that a new client has to reach the cluster, if the old ones get no answer.
NEW_CLIENT_LIMIT_S = 2.0
# Seconds between two looks at whether somebody made the topic a compacted one.
POLICY_EVERY_S = 60.0

log = structlog.get_logger(__name__)


class TopicWatch:
    """Looks at a topic, and logs when the cluster goes out of reach and when it is back.

    Attributes
    ----------
    admin
        The client that asks. Whoever makes a watch closes it.
    ends
        For each partition, the offset after its last record (of committed transactions) at the last check.

    Raises
    ------
    SourceError
        The cluster is out of reach for ``options.start_timeout_s`` or refuses.
    """

    def __init__(self, options: KafkaOptions, topic: str) -> None:
        self.admin = topics.open_admin(options)
        self._topic = topic
        self.ends: dict[TopicPartition, int] = {}
        self._looked_at = float("-inf")
        self._policy_looked_at = time.monotonic()
        self._options = options
        self._description = Question(lambda: topics.describe(self.admin, topic))
        self._policy = Question(lambda: topics.compaction(self.admin, options, topic))
        self._outage, self._absence = Outage(options.servers), Absence(options.servers, topic)

    @property
    def away(self) -> bool:
        """Whether the cluster is out of reach now, and the log says so."""
        return self._outage.logged

    @property
    def answered_at(self) -> float:
        """When the cluster answered last, by the monotonic clock."""
        return self._outage.reached_at

    @property
    def is_due(self) -> bool:
        """Whether the next check is due."""
        return time.monotonic() - self._looked_at >= LOOK_EVERY_S

    def look_soon(self) -> None:
        """Make the next check due at once."""
        self._looked_at = float("-inf")

    def look(self, consumer: Any, owned: Iterable[TopicPartition], late: bool = False) -> topics.Topic | None:
        """Ask for the topic's description, and for the ends of these partitions; None if the cluster cannot say now.

        With ``late`` the description may be the answer to an earlier look.

        Raises SourceRefused if the topic is missing from a cluster that answers, and stays missing.
        """
        topic, reason = None, f"topic {self._topic!r} is missing"
        try:
            topic = self._description.answer(LOOK_LIMIT_S, late)
            self._absence.note(topic is None)
            if topic:
                partitions = list(owned) or [TopicPartition(self._topic, 0)]
                self.ends |= consumer.end_offsets(partitions, timeout_ms=milliseconds(LOOK_LIMIT_S))
                self._look_at_policy()
        except kafka.errors.RetriableError as error:
            topic, reason = None, type(error).__name__
        self._looked_at = time.monotonic()
        if topic is None:
            self._outage.check_failed(reason)
        else:
            self._outage.check_succeeded()
        return topic

    def replace_admin(self) -> bool:
        """Ask with a new client from now on; False if no new client reaches the cluster: then the old one stays.

        True means that the clients that get no answer are broken, and not the cluster.
        """
        try:
            admin = topics.open_admin(msgspec.structs.replace(self._options, start_timeout_s=NEW_CLIENT_LIMIT_S))
        except SourceError:
            return False
        for question in (self._description, self._policy):
            question.drop()
        self.admin.close()
        self.admin = admin
        return True

    def _look_at_policy(self) -> None:
        """Once a minute, log an error if the topic is compacted. Reading goes on, so that less is dropped unread."""
        if time.monotonic() - self._policy_looked_at < POLICY_EVERY_S:
            return
        reason = self._policy.answer(LOOK_LIMIT_S, late=True)
        self._policy_looked_at = time.monotonic()
        if reason:
            log.error(
                "topic_compacted",
                topic=self._topic,
                reason=reason,
                action="reading goes on, so that less is dropped unread",
            )
