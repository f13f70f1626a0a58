"""Routers from another topic into the feedback log."""

from __future__ import annotations

import uuid

from prometheus_client import CollectorRegistry

from omdml.errors import ConfigurationError, SourceError
from omdml.streams.kafka.routing.beginning import Begin, decide_beginning
from omdml.streams.kafka.routing.origin import RoutedSource
from omdml.streams.kafka.routing.router import Router, Targets
from omdml.streams.kafka.safety import groups
from omdml.streams.kafka.topic import create_topic, look_up
from omdml.workers.configuration.config import FileLog, KafkaLog
from omdml.workers.router.metrics import RouterMetrics
from omdml.workers.router.model_key import key_of
from omdml.workers.wiring.dead_letters import letters_topic
from omdml.workers.wiring.kafka_topic import connection


def routers_group(log: KafkaLog, origin: str) -> str:
    """The consumer group of the routers of a topic."""
    return f"{log.group}.route.{origin}"


def routed_topics(log: KafkaLog) -> list[str]:
    """The topics that routers copy into this log, as far as Kafka remembers them; raises SourceError."""
    prefix = routers_group(log, "")
    return [group.removeprefix(prefix) for group in groups(connection(log), prefix)]


def build_router(
    log: FileLog | KafkaLog,
    origin: str,
    registry: CollectorRegistry,
    accept_gap: bool,
    begin: Begin | None = None,
) -> Router:
    """A router from the topic ``origin`` into the feedback log; raises ConfigurationError, SourceError."""
    if isinstance(log, FileLog):
        raise ConfigurationError(
            "log.kind is 'file', but omdml route copies one topic of Kafka into another: set log.kind = \"kafka\""
        )
    letters = letters_topic(log)
    if origin in (log.topic, letters):
        what = "log.topic" if origin == log.topic else "the topic of the dead letters"
        raise ConfigurationError(f"--from {origin!r} is {what} itself: expected the topic that unkeyed events come by")
    options, group = connection(log), routers_group(log, origin)
    if look_up(options, origin) is None:
        raise SourceError(
            f"Kafka at {log.servers} has no topic {origin!r}: correct --from, or create the topic: "
            f"kafka-topics.sh --create --if-not-exists --topic {origin} --partitions N --bootstrap-server {log.servers}"
        )
    if not log.letters:
        create_topic(options, letters)
    targets = Targets(log.topic, letters).measured(options)
    decide_beginning(options, origin, log.topic, group, begin)
    source = RoutedSource(
        options,
        topic=origin,
        group=group,
        group_instance_id=log.member,
        session_timeout_s=log.session_timeout_s,
    )
    name = f"{group}.{log.member or uuid.uuid4().hex}"
    metrics = RouterMetrics(registry)
    router = Router(source, targets, key_of, metrics, name=name, partitioner=log.partitioner, accept_gap=accept_gap)
    metrics.watch(lambda: router.connected)
    return router
