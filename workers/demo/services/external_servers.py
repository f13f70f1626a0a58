"""Servers that already run and that the demo may use. It uses a name of its own there, and removes everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kafka.errors import UnknownTopicOrPartitionError

from omdml.errors import SourceError
from omdml.streams.addresses import masked, without_prefix
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.topic import administering, create_topic
from omdml.streams.stores.redis.client import connect, reaching
from omdml.streams.stores.redis.keys import StoreKeys


@contextmanager
def own_topic(servers: str, name: str) -> Iterator[None]:
    """Create a topic, and delete it afterwards, together with the topic of its dead letters.

    Raises SourceError if the topic exists already or Kafka is out of reach.
    """
    options = KafkaOptions(servers=servers)
    if not create_topic(options, name):
        raise SourceError(f"Kafka at {servers} has a topic {name!r} already, expected a name of our own: try again")
    try:
        yield
    finally:
        with administering(options, f"deleting topic {name!r} and that of its dead letters") as admin:
            for topic in (name, f"{name}.letters"):
                with suppress(UnknownTopicOrPartitionError):
                    admin.delete_topics([topic])


@contextmanager
def own_keys(url: str, name: str) -> Iterator[str]:
    """The URL of the same store with keys that begin with ``name``, which are deleted afterwards; raises StoreError."""
    plain, _ = without_prefix(url)
    client = connect(plain)
    with reaching(masked(url)):
        client.ping()
    try:
        yield f"{plain}{'&' if '?' in plain else '?'}prefix={name}"
    finally:
        with reaching(masked(url)):
            for key in client.scan_iter(f"{name}:*", count=1000):
                client.unlink(key)
            client.unlink(StoreKeys(name).secret)
        client.close()
