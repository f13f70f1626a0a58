"""Checkpoints and snapshots in real Redis and Valkey."""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from deploy.local import RedisServer
from omdml.errors import CorruptError, StoreError, StoreLost
from omdml.snapshot import Checkpoint, Snapshot
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Written
from omdml.streams.stores.journal import MOVES_KEPT
from omdml.streams.stores.redis import scripts
from omdml.streams.stores.redis.store import RedisStore
from omdml.streams.stores.retention import Retention
from omdml.workers.configuration.loading import load
from omdml.workers.doctor.checks.installation import examine
from tests.contracts.test_checkpoint_stores import TestCheckpointsOfAnyStore
from tests.contracts.test_mark_stores import TestMarksOfAnyStore
from tests.contracts.test_snapshot_stores import TestSnapshotsOfAnyStore
from tests.support.learning.store_samples import Copy, Damage, checkpoint, history_fields, live, published, snapshot
from tests.support.waiting import until

# The contract of stores runs here again, on real servers.
__all__ = [
    "TestCheckpointsOfAnyStore",
    "TestMarksOfAnyStore",
    "TestSnapshotsOfAnyStore",
]


@pytest.fixture
def damage(client: redis.Redis) -> Damage:
    def damage() -> None:
        for key in ("omdml:{shop}:checkpoint", "omdml:{shop}:checkpoint:previous"):
            if (client.hget(key, "data") or b"?") != b"?":
                client.hset(key, "data", b"?")
                return

    return damage


@pytest.fixture
def remove(client: redis.Redis) -> Damage:
    def remove() -> None:
        client.delete("omdml:{shop}:checkpoint", "omdml:{shop}:checkpoint:previous")

    return remove


@pytest.fixture
def copy(client: redis.Redis) -> Copy:
    keys = ("omdml:{shop}:checkpoint", "omdml:{shop}:checkpoint:previous")

    def copy() -> Callable[[], None]:
        dumps = {key: data for key in keys if (data := client.dump(key))}

        def put_back() -> None:
            for key, data in dumps.items():
                client.restore(key, 0, data, replace=True)

        return put_back

    return copy


# What lies there


def test_any_client_can_read_what_is_live(store: RedisStore, client: redis.Redis) -> None:
    epoch = published(store, 4)
    store.save(checkpoint(9), epoch)
    current = client.hgetall("omdml:{shop}:current")
    assert set(current) == {b"serial", b"version", b"digest", b"epoch", b"published_at", b"pinned"}
    data = client.get(b"omdml:{shop}:snapshot:%s:%s" % (current[b"version"], current[b"digest"]))
    assert data
    assert Snapshot.from_bytes(data).to_bytes() == snapshot(4).to_bytes()
    fields = client.hgetall("omdml:{shop}:checkpoint")
    assert (fields[b"home_topic"], fields[b"home_partition"], fields[b"next"]) == (b"topic-id", b"3", b"9")
    assert Checkpoint.from_bytes(fields[b"data"]) == checkpoint(9)
    assert client.get("omdml:{shop}:epoch") == fields[b"epoch"] == epoch.encode()


def test_a_refused_publisher_leaves_nothing_and_what_is_published_stays(store: RedisStore, client: redis.Redis) -> None:
    first, second = store.claim("shop").epoch, published(store, 4)
    store.publish(snapshot(5), first)
    store.publish(snapshot(4), first)
    store.publish(snapshot(6), second, withheld="mistakes rose")
    lives = {key.split(b":")[3]: client.ttl(key) for key in client.scan_iter("omdml:{shop}:snapshot:*")}
    assert lives == {b"4": -1, b"6": -1}


def test_bytes_that_others_left_to_vanish_become_permanent_if_published(store: RedisStore, client: redis.Redis) -> None:
    epoch, key = store.claim("shop").epoch, f"omdml:{{shop}}:snapshot:5:{snapshot(5).digest}"
    client.set(key, snapshot(5).to_bytes(), ex=600)
    assert store.publish(snapshot(5), epoch) is Written.STORED
    assert client.ttl(key) == -1


def test_new_models_cost_the_server_three_scripts_and_one_look_each(store: RedisStore, client: redis.Redis) -> None:
    names = [f"user-{number}" for number in range(20)]
    store.claim("shop")
    client.config_resetstat()
    assert store.positions(names) == {}
    epochs = [claim.epoch for claim in store.claim_all(names)]
    store.current_all(names)
    store.publish_all([(snapshot(1, model=name), epoch, "") for name, epoch in zip(names, epochs, strict=True)])
    store.save_all([(checkpoint(1, model=name), epoch) for name, epoch in zip(names, epochs, strict=True)])
    calls = {name: stats["calls"] for name, stats in client.info("commandstats").items()}
    assert calls["cmdstat_evalsha"] == 3 * len(names)
    assert calls["cmdstat_smismember"] == 1


def test_two_stores_on_one_server_have_different_prefixes(redis_url: str, store: RedisStore) -> None:
    other = RedisStore(f"{redis_url}/0?prefix=other")
    published(store, 4)
    assert other.models() == []
    published(other, 7)
    assert (live(store).version, live(other).version) == (4, 7)
    assert live(store).store_id != live(other).store_id


def test_what_another_client_put_among_the_models_and_is_no_text_is_left_out(
    store: RedisStore, client: redis.Redis
) -> None:
    published(store, 4)
    client.sadd("omdml:models", b"\xff")
    assert store.models() == ["shop"]


def test_an_id_of_the_store_that_is_no_text_keeps_nobody_from_what_is_live(
    store: RedisStore, client: redis.Redis
) -> None:
    published(store, 4)
    client.set("omdml:store", b"\xff")
    assert store.store_id == live(store).store_id != ""
    assert live(store).version == 4


def test_a_damaged_secret_is_an_error_that_names_its_key(store: RedisStore, client: redis.Redis) -> None:
    client.set("omdml-secret", "nonsense")
    with pytest.raises(StoreError, match="key omdml-secret: holds 8 bytes that are no secret"):
        store.secret()


def test_every_key_of_a_model_lies_in_one_slot_of_a_cluster(store: RedisStore, client: redis.Redis) -> None:
    model = "a}b{c"
    store.save(checkpoint(1, model=model), published(store, 1, 2, model=model))
    tags = {key.split(b"{")[1].split(b"}")[0] for key in client.keys("omdml:{*")}
    assert tags == {b"a%7Db%7Bc"}


def test_the_history_does_not_grow_without_end(store: RedisStore) -> None:
    epoch = published(store, 1)
    for _ in range(MOVES_KEPT + 50):
        store.move("shop", 1, pin=False)
    for version in range(2, 14):
        store.publish(snapshot(version), epoch)
    assert len(store.history("shop")) < MOVES_KEPT + 30


def test_a_model_that_is_deleted_while_it_is_claimed_is_listed_if_it_is_owned(
    store: RedisStore, redis_url: str, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, commands, pipelines, owned = RedisStore(redis_url), 3, store._client.pipeline, 0
    # So that the server knows the scripts.
    store.claim("earlier")
    for before in range(1, commands):

        def interrupted(before: int = before, **options: Any) -> Any:
            pipeline = pipelines(**options)
            execute = pipeline.execute

            def execute_in_two(**options: Any) -> list[Any]:
                first, rest = pipeline.command_stack[:before], pipeline.command_stack[before:]
                assert len(first + rest) == commands
                pipeline.command_stack = first
                answers = execute(**options)
                other.delete("shop")
                pipeline.command_stack = rest
                return [*answers, *execute(**options)]

            pipeline.execute = execute_in_two
            return pipeline

        with monkeypatch.context() as patch:
            patch.setattr(store._client, "pipeline", interrupted)
            epoch = store.claim("shop").epoch
        saved = client.exists("omdml:{shop}:epoch") and store.save(checkpoint(1), epoch)
        assert not saved or "shop" in store.models()
        owned += bool(saved)
        other.delete("shop")
    assert owned


# Retries


def test_a_claim_whose_answer_was_lost_is_repeated_and_fences_nobody(client: redis.Redis) -> None:
    claim = client.register_script(scripts.CLAIM)
    answers = {tuple(claim(["epoch", "checkpoint", "newest", "previous"], ["nonce"])) for _ in range(2)}
    assert answers == {(b"0000000001-nonce", None, None, None, None, None)}


def test_a_store_works_after_the_server_closed_connections_and_forgot_scripts(
    store: RedisStore, client: redis.Redis
) -> None:
    epoch = published(store, 1)
    client.script_flush()
    client.client_kill_filter(_type="normal", skipme=True)
    assert store.save(checkpoint(1), epoch) is Written.STORED
    client.client_kill_filter(_type="normal", skipme=True)
    client.script_flush()
    assert store.publish(snapshot(2), epoch) is Written.STORED


# Loss and damage


def test_if_the_key_of_the_newest_checkpoint_is_gone_the_older_one_is_used(
    store: RedisStore, client: redis.Redis
) -> None:
    epoch = store.claim("shop").epoch
    for offset in (1, 2, 3):
        store.save(checkpoint(offset), epoch)
    client.delete("omdml:{shop}:checkpoint")
    for _ in range(2):
        claim = store.claim("shop")
        assert claim[1:] == (checkpoint(2), True)
    assert store.save(checkpoint(3, state=b"replayed"), claim.epoch) is Written.STORED
    assert store.claim("shop")[1:] == (checkpoint(3, state=b"replayed"), False)


def test_a_model_that_is_published_without_pause_is_deleted_as_a_whole(store: RedisStore, client: redis.Redis) -> None:
    # Given a worker that publishes and saves as fast as it can
    store.save(checkpoint(0), epoch := published(store, 1))
    ends: list[str] = []

    def work() -> None:
        busy = RedisStore(store._url)
        try:
            for version in itertools.count(2):
                busy.publish(snapshot(version), epoch)
                busy.save(checkpoint(version), epoch)
        except StoreLost as error:
            ends.append(str(error))

    worker = threading.Thread(target=work)
    worker.start()
    until(lambda: live(store).version > 20)
    # If the model is deleted, I expect the worker to be told, and nothing to be left.
    store.delete("shop")
    worker.join(10)
    assert len(ends) == 1
    assert client.keys("omdml:{shop}:*") == []
    assert store.models() == []
    # If the model is begun again, I expect all of it in its place
    published(store, 0)
    assert (store.models(), live(store).version) == (["shop"], 0)


@pytest.mark.parametrize(("policy", "well"), [("noeviction", True), ("volatile-lru", True), ("allkeys-lru", False)])
def test_the_doctor_warns_of_a_server_that_evicts(
    redis_url: str, settings: Callable[[str, str], None], tmp_path: Path, policy: str, well: bool
) -> None:
    settings("maxmemory-policy", policy)
    loaded = load(None, {}, {"store": {"url": redis_url}, "log": {"path": f"{tmp_path}/log"}})
    finding = next(entry for entry in examine(loaded) if entry.check == "store")
    assert finding.well is well
    assert well or "maxmemory-policy allkeys-lru" in finding.text


def test_a_store_that_was_emptied_differs_from_the_one_before(store: RedisStore, any_redis: RedisServer) -> None:
    epoch = published(store, 4)
    before = live(store)
    any_redis.flush()
    assert store.current("shop") is None
    with pytest.raises(StoreLost, match=str(any_redis.port)):
        store.save(checkpoint(5), epoch)
    published(store, 4)
    assert live(store).serial == before.serial
    assert live(store).store_id not in ("", before.store_id)


def test_what_was_saved_survives_a_kill_of_the_server(store: RedisStore, any_redis: RedisServer) -> None:
    epoch = published(store, 4)
    store.save(checkpoint(9), epoch)
    any_redis.kill()
    any_redis.start()
    assert store.publish(snapshot(5), epoch) is Written.STORED
    assert store.claim("shop").checkpoint == checkpoint(9)


def test_a_damaged_snapshot_is_refused_until_it_is_published_again(store: RedisStore, client: redis.Redis) -> None:
    epoch = published(store, 4)
    (key,) = client.keys("omdml:{shop}:snapshot:*")
    client.setrange(key, int(client.strlen(key)) - 3, b"?")
    with pytest.raises(CorruptError, match=r"version 4 .*sha256.*go back to another version"):
        store.load("shop")
    assert store.publish(snapshot(4), epoch) is Written.ALREADY
    loaded = store.load("shop")
    assert loaded
    assert loaded[1].to_bytes() == snapshot(4).to_bytes()


def test_a_paused_owner_drops_nothing_that_its_successor_published_again(
    store: RedisStore, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = store.current

    def published_meanwhile(model: str) -> Any:
        monkeypatch.setattr(store, "current", read)
        # The successor learns again from an older checkpoint: what was superfluous is among its newest versions.
        published(RedisStore(redis_url, Retention(last=12)), *range(8))
        return read(model)

    published(store, *range(8))
    store.retention = Retention(last=1, minutes=0, hours=0, days=0)
    monkeypatch.setattr(store, "current", published_meanwhile)
    store._thin_out("shop")
    assert [version for (version,) in history_fields(store, "version")] == [*range(8), *range(8)]
    assert all(store.load("shop", version) for version in range(8))
    store._thin_out("shop")
    assert [version for (version,) in history_fields(store, "version")] == [7, 7]


def test_a_snapshot_that_something_else_removed_is_an_error_with_what_to_do(
    store: RedisStore, client: redis.Redis
) -> None:
    published(store, 4)
    client.delete(*client.keys("omdml:{shop}:snapshot:*"))
    with pytest.raises(StoreError, match=r"version 4 .* are gone.*Go back to another version"):
        store.load("shop")
    with pytest.raises(StoreError, match="no snapshot of version 4 is kept"):
        store.move("shop", 4, pin=True)


def test_values_that_another_program_wrote_are_an_error_that_shows_them(store: RedisStore, client: redis.Redis) -> None:
    published(store, 4)
    client.set("omdml:mark:t:0", "twelve")
    with pytest.raises(StoreError, match="twelve"):
        store.marks([Partition("t", 0)])
    client.hset("omdml:{shop}:current", "serial", "second")
    with pytest.raises(StoreError, match="second"):
        store.current("shop")
    client.delete("omdml:{shop}:current")
    client.set("omdml:{shop}:current", "live")
    with pytest.raises(StoreError, match=r"model 'shop': HGETALL omdml:{shop}:current: WRONGTYPE.*restore or remove"):
        store.current("shop")


@pytest.mark.parametrize(
    ("key", "value"), [("history", "a string"), ("current", "a string"), ("current", {"version": 1, "serial": "abc"})]
)
def test_a_script_that_meets_a_foreign_key_names_the_model_and_its_keys(
    store: RedisStore, client: redis.Redis, key: str, value: Any
) -> None:
    epoch = store.claim("shop").epoch
    if isinstance(value, str):
        client.set(f"omdml:{{shop}}:{key}", value)
    else:
        client.hset(f"omdml:{{shop}}:{key}", mapping=value)
    with pytest.raises(StoreError, match=r"model 'shop': .*history: stream; current, .*hash.*: restore or remove"):
        store.publish(snapshot(5), epoch)
