"""A Kafka topic as a feedback log: its identity, whether it is fit for feedback, how it is created."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import kafka.errors
import msgspec
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from omdml.errors import SourceError, SourceRefused
from omdml.streams.kafka import internals
from omdml.streams.kafka.login_check import check_admission
from omdml.streams.kafka.options import KafkaOptions, connecting, translated

# Each broker of a cluster hears of a new topic by itself. This is how long one is given that has not heard of it yet,
# and how often it is asked.
HEARD_WITHIN_S, ASK_EVERY_S = 5.0, 0.1


class Topic(NamedTuple):
    """A topic as the cluster describes it; one created again under the same name has another ``id``."""

    id: str
    partitions: int


def create_topic(options: KafkaOptions, name: str, *, partitions: int = 1, retention_s: float | None = None) -> bool:
    """Create a topic fit for feedback, and return when it has its leaders. Brokers say when an event came, not clients.

    Parameters
    ----------
    retention_s
        Seconds that events are kept; None keeps them for ever, so that models can be rebuilt from the log.

    Returns
    -------
    bool
        False if a topic of that name exists already; it stays as it is.
    """
    retention_ms = -1 if retention_s is None else int(retention_s * 1000)
    configs = {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        # What an event says of its own time is compared with this.
        "message.timestamp.type": "LogAppendTime",
    }
    # The cluster decides how many copies a partition has.
    new_topic = {"num_partitions": partitions, "replication_factor": -1, "configs": configs}
    try:
        with administering(options, f"creating topic {name!r}") as admin:
            admin.create_topics({name: new_topic}, wait_for_metadata=True)
    except SourceError as error:
        if isinstance(error.__cause__, kafka.errors.TopicAlreadyExistsError):
            return False
        raise
    return True


def grow_topic(options: KafkaOptions, name: str, partitions: int) -> None:
    """Raise the number of a topic's partitions to this one. All events are kept. Raises SourceError."""
    with administering(options, f"adding partitions to topic {name!r}") as admin:
        admin.create_partitions({name: partitions})


def open_admin(options: KafkaOptions) -> Any:
    """An administration client; raises SourceError if the cluster is out of reach or rejects our credentials."""
    until = time.monotonic() + options.start_timeout_s
    with connecting(options):
        check_admission(options)
        remaining = msgspec.structs.replace(options, start_timeout_s=max(0.0, until - time.monotonic()))
        return internals.make_client(KafkaAdminClient, **remaining.client(), request_timeout_ms=10_000)


@contextmanager
def administering(options: KafkaOptions, doing: str) -> Iterator[Any]:
    """An administration client until the block ends. Errors are those of :func:`open_admin` and ``translated``."""
    admin = open_admin(options)
    try:
        with translated(options, doing):
            yield admin
    finally:
        admin.close()


def describe(admin: Any, name: str) -> Topic | None:
    """The topic as it is now, None if there is none; raises what kafka-python raises."""
    (description,) = admin.describe_topics([name])
    error = kafka.errors.for_code(description["error_code"])
    if error is kafka.errors.UnknownTopicOrPartitionError:
        return None
    if error is not kafka.errors.NoError:
        raise error(f"topic {name!r}")
    return Topic(str(description["topic_id"]), len(description["partitions"]))


def look_up(options: KafkaOptions, name: str) -> Topic | None:
    """The topic as it is now, None if there is none; raises SourceError."""
    with administering(options, f"describing topic {name!r}") as admin:
        return describe(admin, name)


def message_limit(options: KafkaOptions, name: str) -> int:
    """The largest message that a topic takes; raises SourceError if it is missing, or unfit for feedback."""
    with administering(options, f"describing topic {name!r}") as admin:
        require(admin, options, name)
        return int(_setting(admin, name, "max.message.bytes"))


def require(admin: Any, options: KafkaOptions, name: str) -> Topic:
    """The topic, fit to hold feedback; raises SourceError if it is missing, SourceRefused if it is compacted."""
    topic = require_there(admin, options, name)
    with translated(options, f"describing topic {name!r}"):
        refusal = compaction(admin, options, name)
    if refusal:
        raise SourceRefused(refusal)
    return topic


def require_there(admin: Any, options: KafkaOptions, name: str) -> Topic:
    """The topic; raises SourceError if it is missing. A user that may write to it may ask this."""
    with translated(options, f"describing topic {name!r}"):
        until = time.monotonic() + HEARD_WITHIN_S
        while (topic := describe(admin, name)) is None and time.monotonic() < until:
            time.sleep(ASK_EVERY_S)
    if topic is None:
        raise SourceError(
            f"Kafka at {options.servers} has no topic {name!r}. Create it: omdml topics create --topic {name}, "
            f"or kafka-topics.sh --create --if-not-exists --topic {name} --partitions N --config cleanup.policy=delete "
            f"--bootstrap-server {options.servers}"
        )
    return topic


def compaction(admin: Any, options: KafkaOptions, name: str) -> str:
    """What it means that a topic is compacted, and what to do; empty if it is not. Raises what kafka-python raises."""
    policy = _setting(admin, name, "cleanup.policy")
    if "compact" not in policy:
        return ""
    return (
        f"topic {name!r} at {options.servers} has cleanup.policy={policy}, which keeps one event for each model "
        f"(the key is the model's name) and drops the rest. Set it to delete: kafka-configs.sh --bootstrap-server "
        f"{options.servers} --alter --entity-type topics --entity-name {name} --add-config cleanup.policy=delete. "
        "Dropped events leave no gap that a worker could notice: what was not learned of them is lost"
    )


def _setting(admin: Any, name: str, key: str) -> str:
    resource = ConfigResource(ConfigResourceType.TOPIC, name, configs={key: None})
    answer = admin.describe_configs([resource], config_filter="all")
    return str(answer["topic"][name][key]["value"])
