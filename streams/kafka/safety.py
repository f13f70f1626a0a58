"""Settings of topics and brokers that decide what is lost with a broker, or if a topic is not read for a long time."""

from __future__ import annotations

from typing import NamedTuple

from kafka.admin import ConfigResource, ConfigResourceType

from omdml.errors import SourceRefused
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.topic import administering

SETTINGS = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
)


class TopicSafety(NamedTuple):
    """What a topic promises about its records; ``None`` for a retention means: for ever, or of any size."""

    replicas: int
    min_insync: int
    unclean_election: bool
    cleanup_policy: str
    retention_s: float | None
    retention_bytes: int | None


def topic_safety(options: KafkaOptions, name: str) -> TopicSafety:
    """The settings of an existing topic that decide what can be lost; raises SourceError."""
    resource = ConfigResource(ConfigResourceType.TOPIC, name, configs=dict.fromkeys(SETTINGS))
    with administering(options, f"describing topic {name!r}") as admin:
        (topic,) = admin.describe_topics([name])
        settings = admin.describe_configs([resource], config_filter="all")["topic"][name]
    if not settings:
        raise SourceRefused(
            f"topic {name!r}: this user may not ask for its settings; give it the rights (ACLs) that "
            "deploy/SECURITY.md lists: describe_configs"
        )
    value = {key: str(settings[key]["value"]) for key in SETTINGS}
    retention_ms, retention_bytes = int(value["retention.ms"]), int(value["retention.bytes"])
    return TopicSafety(
        replicas=min(len(partition["replica_nodes"]) for partition in topic["partitions"]),
        min_insync=int(value["min.insync.replicas"]),
        unclean_election=value["unclean.leader.election.enable"].lower() == "true",
        cleanup_policy=value["cleanup.policy"],
        retention_s=None if retention_ms < 0 else retention_ms / 1000,
        retention_bytes=None if retention_bytes < 0 else retention_bytes,
    )


def groups(options: KafkaOptions, prefix: str) -> list[str]:
    """Consumer groups of the cluster, visible to this user, whose names have this prefix. Raises SourceError."""
    with administering(options, "listing the groups") as admin:
        names = [str(group["group_id"]) for group in admin.list_groups()]
    return sorted(name for name in names if name.startswith(prefix))


def offsets_kept_s(options: KafkaOptions) -> float | None:
    """Seconds for which a group's offsets outlive its last member, by the broker that keeps them for the shortest time.

    None if this user may not ask. Raises SourceError.
    """
    key = "offsets.retention.minutes"
    with administering(options, "describing the brokers") as admin:
        brokers = [str(broker["broker_id"]) for broker in admin.describe_cluster()["brokers"]]
        resources = [ConfigResource(ConfigResourceType.BROKER, broker, configs={key: None}) for broker in brokers]
        answer = admin.describe_configs(resources, config_filter="all")["broker"]
    # The answer about a broker is empty if this user has no right to it.
    return min((60.0 * int(settings[key]["value"]) for settings in answer.values() if key in settings), default=None)
