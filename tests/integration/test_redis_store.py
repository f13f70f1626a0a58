"""Checkpoints and snapshots in real Redis and Valkey."""

import time
from collections.abc import Callable

import pytest
import redis
import structlog

from deploy.local import RedisServer
from omdml.errors import CorruptError, StoreError, StoreLost
from streams import redis_scripts
from streams.journal import MOVES_KEPT
from streams.protocols import Partition, Written
from streams.redis import RedisStore
from streams.retention import Retention
from tests.integration.waiting import until
from tests.test_stores import Damage, TestAnyStore, checkpoint, live, published, snapshot, told

__all__ = ["TestAnyStore"]  # collected here once more, with the fixtures of this module


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    return redis.Redis.from_url(redis_url)


@pytest.fixture
def store(redis_url: str) -> RedisStore:
    return RedisStore(redis_url, Retention(last=12))


@pytest.fixture
def damage(client: redis.Redis) -> Damage:
    def damage() -> None:
        for key in ("omdml:{shop}:checkpoint", "omdml:{shop}:checkpoint:previous"):
            if (client.hget(key, "data") or b"?") != b"?":
                client.hset(key, "data", b"?")
                return

    return damage
