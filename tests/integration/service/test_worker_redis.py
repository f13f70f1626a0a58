"""A worker on a real Redis and a real Valkey that come back older, or empty, while it lives."""

from __future__ import annotations

import pytest
import redis

from deploy.local import RedisServer, ValkeyServer
from omdml.streams.stores.redis.store import RedisStore
from tests.support.pauses import _no_waiting  # noqa: F401
from tests.support.worlds import World, events, learned_directly, run_until_idle


@pytest.fixture(params=[RedisServer, ValkeyServer])
def server(request):
    """A server that writes a dump only on request, and starts with the last one."""
    with request.param(durable=False) as running:
        yield running


@pytest.fixture
def client(server):
    with redis.Redis.from_url(server.url) as connected:
        yield connected


def bring_back(client, dumped):
    """The keys that were dumped, and no others, on the server as it runs."""
    client.flushall()
    for key, (value, left_ms) in dumped.items():
        client.restore(key, max(0, left_ms), value)


@pytest.mark.parametrize("how", ["an older dump, in place", "a crash, and an older dump", "a crash that loses nothing"])
def test_nothing_is_lost_when_the_server_comes_back(tmp_path, server, client, how, capsys):
    world = World(tmp_path)
    world.store = RedisStore(server.url)
    worker = world.worker()
    world.send(*events(10, seed=1, model="user-1"))
    world.send(*list(events(20))[:10])
    run_until_idle(worker)
    client.save()
    dumped = {key: (client.dump(key), client.pttl(key)) for key in client.scan_iter()}
    world.send(*events(10, seed=3, model="user-1"))
    run_until_idle(worker)
    if how == "an older dump, in place":
        bring_back(client, dumped)
    else:
        if how == "a crash that loses nothing":
            client.save()
        server.kill()
        server.start()
    world.send(*list(events(20))[10:])
    run_until_idle(worker)
    assert "store_changed" in capsys.readouterr().out
    assert world.store.claim("user-1").checkpoint.version == 20
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 20).to_bytes()
    assert world.store.load("user-1")[1].version == 20


def test_a_user_who_may_not_ask_for_the_run_is_protected_by_the_mark(tmp_path, server, client):
    client.acl_setuser("worker", enabled=True, passwords=["+secret"], keys=["*"], channels=["*"], categories=["+@all"],
                       commands=["-info"])  # fmt: skip
    world = World(tmp_path)
    world.store = RedisStore(server.url.replace("redis://", "redis://worker:secret@"))
    worker = world.worker()
    world.send(*events(10))
    run_until_idle(worker)
    dumped = {key: (client.dump(key), client.pttl(key)) for key in client.scan_iter()}
    assert world.store.marks([]).run == ""
    world.send(*events(10, seed=1))
    run_until_idle(worker)
    bring_back(client, dumped)
    run_until_idle(worker)
    assert world.store.claim("shop").checkpoint.version == 20


def test_a_model_whose_newest_checkpoint_is_gone_is_replayed_from_an_older_one(tmp_path, server, client):
    world = World(tmp_path)
    world.store = RedisStore(server.url)
    for part in (slice(0, 10), slice(10, 20)):
        world.send(*list(events(30))[part])
        worker = world.worker()
        run_until_idle(worker)
        worker.stop()
        worker.run()
    client.delete("omdml:{shop}:checkpoint")
    world.send(*list(events(30))[20:])
    run_until_idle(world.worker())
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 30).to_bytes()
