"""A store on a real server, and a client that looks at its keys."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import redis

from deploy.local import RedisServer
from omdml.streams.stores.redis.store import RedisStore
from omdml.streams.stores.retention import Retention


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def settings(client: redis.Redis) -> Iterator[Callable[[str, str], None]]:
    """Changes a setting of the server until the end of the test."""
    before: dict[str, str] = {}

    def change(name: str, value: str) -> None:
        before.setdefault(name, client.config_get(name)[name])
        client.config_set(name, value)

    yield change
    for name, value in before.items():
        client.config_set(name, value)


@pytest.fixture
def outage(any_redis: RedisServer) -> Callable[[], AbstractContextManager[None]]:
    """The server is away within this context."""

    @contextmanager
    def outage() -> Iterator[None]:
        any_redis.stop()
        yield
        any_redis.start()

    return outage


@pytest.fixture
def store(redis_url: str) -> RedisStore:
    return RedisStore(redis_url, Retention(last=12))


@pytest.fixture
def other(redis_url: str) -> RedisStore:
    """The same store once more, as another process opens it."""
    return RedisStore(redis_url, Retention(last=12))
