"""A store whose server is away, full, or refuses: errors say which server it is and what to do."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import redis

from deploy.local import RedisServer
from omdml.errors import StoreError
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Written
from omdml.streams.stores.redis.store import RedisStore
from omdml.workers.versions.moves import pin, rollback
from tests.support.learning.store_samples import checkpoint, history_fields, live, published, snapshot

EVERY_METHOD: dict[str, Callable[[RedisStore], Any]] = {
    "claim": lambda store: store.claim("shop"),
    "save": lambda store: store.save(checkpoint(1), "1-nonce"),
    "replace": lambda store: store.replace(checkpoint(1), "1-nonce", 0),
    "marks": lambda store: store.marks([Partition("t", 0)]),
    "move_mark": lambda store: store.move_mark(Partition("t", 0), None, 1),
    "secret": lambda store: store.secret(),
    "kept_secret": lambda store: store.kept_secret(),
    "models": lambda store: store.models(),
    "delete": lambda store: store.delete("shop"),
    "publish": lambda store: store.publish(snapshot(1), "1-nonce"),
    "current": lambda store: store.current("shop"),
    "load": lambda store: store.load("shop"),
    "load version": lambda store: store.load("shop", 1),
    "history": lambda store: store.history("shop"),
    "move": lambda store: store.move("shop", 1, pin=True),
}


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_a_server_that_is_down_is_a_store_error_that_names_it(
    store: RedisStore, any_redis: RedisServer, method: str
) -> None:
    any_redis.stop()
    with pytest.raises(StoreError, match=rf"{any_redis.address}.*is it up"):
        EVERY_METHOD[method](store)
    any_redis.start()
    store.current("shop")


def test_a_server_that_does_not_answer_is_not_waited_for(any_redis: RedisServer) -> None:
    # It is longer than an answer takes on a machine that others use too.
    store = RedisStore(f"{any_redis.url}/0?socket_timeout=1")
    store.current("shop")
    any_redis.pause()
    with pytest.raises(StoreError, match=any_redis.address):
        store.current("shop")


def test_a_rollback_whose_answer_is_lost_is_said_to_be_perhaps_made(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in (1, 2, 3):
        published(store, version)
    move = store._move

    def move_and_hang_up(*words: Any) -> None:
        move(*words)
        raise redis.ConnectionError("Connection closed by server.")

    monkeypatch.setattr(store, "_move", move_and_hang_up)
    with pytest.raises(StoreError, match="may have been made all the same: look at omdml history shop before"):
        rollback(store, "shop", kind=None)
    assert live(store).version == 2


def test_a_wrong_password_is_reported_without_it(redis_url: str, settings: Callable[[str, str], None]) -> None:
    settings("requirepass", "right")
    with pytest.raises(StoreError, match="password") as caught:
        RedisStore(redis_url.replace("redis://", "redis://:wr0ng@")).models()
    assert "wr0ng" not in str(caught.value)
    assert RedisStore(redis_url.replace("redis://", "redis://:right@")).models() == []


def test_a_full_server_refuses_what_is_new_and_goes_on_replacing_checkpoints(
    store: RedisStore, settings: Callable[[str, str], None]
) -> None:
    epoch, other = published(store, 4), store.claim("other").epoch
    store.save(checkpoint(1), epoch)
    settings("maxmemory", "1")
    with pytest.raises(StoreError, match="maxmemory"):
        store.publish(snapshot(5), epoch)
    with pytest.raises(StoreError, match="maxmemory"):
        store.save(checkpoint(2, model="other"), other)
    assert store.save(checkpoint(2), epoch) is Written.STORED
    settings("maxmemory", "0")
    assert live(store).version == 4
    assert store.claim("shop").checkpoint == checkpoint(2)
    assert store.claim("other").checkpoint is None


def test_a_full_server_refuses_claims_alike_and_lets_operators_go_back(
    store: RedisStore, settings: Callable[[str, str], None]
) -> None:
    published(store, 4, 5)
    settings("maxmemory", "1")
    with pytest.raises(StoreError, match="maxmemory") as first:
        store.claim("shop")
    with pytest.raises(StoreError, match=f"^{re.escape(str(first.value))}$"):
        store.claim("shop")
    assert rollback(store, "shop", kind=None).version == 4
    assert pin(store, "shop", kind=None).pinned
    assert history_fields(store, "what", "version")[2:] == [("rolled back", 4), ("pinned", 4)]


def test_a_full_server_refuses_every_write_in_the_same_words(
    store: RedisStore, settings: Callable[[str, str], None]
) -> None:
    epochs = {model: published(store, 1, model=model) for model in ("shop", "other")}
    settings("maxmemory", "1")
    messages = set()
    for version in (2, 3):
        for model, epoch in epochs.items():
            with pytest.raises(StoreError) as refused:
                store.publish(snapshot(version, model=model), epoch)
            messages.add(str(refused.value))
    # The messages are equal, so that a worker that tries again with later versions logs them once.
    assert len(messages) == 1, messages


def test_a_replica_refuses_writes_and_says_so(store: RedisStore, client: redis.Redis) -> None:
    epoch = published(store, 4)
    client.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(StoreError, match="primary"):
            store.save(checkpoint(1), epoch)
        with pytest.raises(StoreError, match="primary"):
            store.publish(snapshot(5), epoch)
        assert live(store).version == 4
    finally:
        client.replicaof("NO", "ONE")
