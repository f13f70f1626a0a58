"""Fixtures: real servers, started once a session by the tests that ask for them.

A test may stop, kill or pause what it asks for: whatever does not run after a test is started again for the next one.
If a server cannot be started, the tests that need it fail and say what to do. None is skipped.
"""

import itertools
import os
from collections.abc import Callable, Iterator

import psycopg
import pytest

from deploy.local import KafkaCluster, KafkaServer, PostgresServer, RedisServer, Server, ServiceError, ValkeyServer

# What conftest.py files of tests with servers import.
__all__ = [
    "any_redis",
    "cluster_of_session",
    "kafka",
    "kafka_cluster",
    "new_topic",
    "postgres",
    "postgres_of_session",
    "pytest_runtest_teardown",
    "redis_of_session",
    "redis_server",
    "redis_url",
    "servers_up_again",
    "valkey_of_session",
    "valkey_server",
]

_STARTED: list[Server | KafkaCluster] = []
_NUMBERS = itertools.count()


def _serve(server: Server | KafkaCluster) -> Iterator[Server | KafkaCluster]:
    refused = ""
    try:
        server.start()
    except ServiceError as error:
        server.close()
        refused = str(error)
    if refused:
        pytest.fail(refused, pytrace=False)
    _STARTED.append(server)
    yield server
    _STARTED.remove(server)
    server.close()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Server | KafkaCluster]:
    """A Kafka broker (a KafkaServer): ``kafka.servers`` is its address."""
    yield from _serve(KafkaServer())


@pytest.fixture(scope="session")
def cluster_of_session() -> Iterator[Server | KafkaCluster]:
    yield from _serve(KafkaCluster())


@pytest.fixture
def kafka_cluster(cluster_of_session: KafkaCluster) -> KafkaCluster:
    """Three brokers with three copies of everything (a KafkaCluster)."""
    return cluster_of_session.start()


@pytest.fixture(scope="session")
def redis_of_session() -> Iterator[Server | KafkaCluster]:
    yield from _serve(RedisServer())


@pytest.fixture
def redis_server(redis_of_session: RedisServer) -> RedisServer:
    """Debian's redis-server, or the one on PATH (a RedisServer), without a key in it."""
    redis_of_session.flush()
    return redis_of_session


@pytest.fixture(scope="session")
def valkey_of_session() -> Iterator[Server | KafkaCluster]:
    yield from _serve(ValkeyServer())


@pytest.fixture
def valkey_server(valkey_of_session: ValkeyServer) -> ValkeyServer:
    """A Valkey (a ValkeyServer), without a key in it."""
    valkey_of_session.flush()
    return valkey_of_session


@pytest.fixture(scope="session")
def postgres_of_session() -> Iterator[Server | KafkaCluster]:
    yield from _serve(PostgresServer())


@pytest.fixture
def postgres(postgres_of_session: PostgresServer) -> PostgresServer:
    """A PostgreSQL that has pgvector (a PostgresServer), without a table or extension in it."""
    with psycopg.connect(postgres_of_session.url, autocommit=True) as database:
        database.execute("DROP EXTENSION IF EXISTS vector CASCADE")
        database.execute("DROP SCHEMA public CASCADE")
        database.execute("CREATE SCHEMA public")
    return postgres_of_session


@pytest.fixture(params=["redis_server", "valkey_server"])
def any_redis(request: pytest.FixtureRequest) -> RedisServer:
    """Redis, then Valkey, without a key in it."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def redis_url(any_redis: RedisServer) -> str:
    """The address of Redis, then of Valkey, without a key in it."""
    return any_redis.url


@pytest.fixture
def new_topic(kafka: KafkaServer) -> Callable[..., str]:
    """Creates a topic that no other test has: ``new_topic(partitions=1, configs=None)`` returns its name."""

    def create(partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        name = f"topic-{os.getpid()}-{next(_NUMBERS)}"
        kafka.create_topic(name, partitions, configs)
        return name

    return create


@pytest.fixture(autouse=True)
def servers_up_again() -> Iterator[None]:
    yield
    for server in _STARTED:
        server.resume()
        # A test that needs the cluster starts it.
        if not isinstance(server, KafkaCluster):
            server.start()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Stop the cluster before a test that does not need it.

    Its four processes take a tenth of a processor even if nothing happens, and the tests that need it are few.
    """
    if "kafka_cluster" not in getattr(nextitem, "fixturenames", ()):
        for server in _STARTED:
            if isinstance(server, KafkaCluster):
                server.stop()
