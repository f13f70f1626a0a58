"""A store brought back from a backup, positions and all: nothing is lost, nothing doubled, the same bytes."""

from __future__ import annotations

import shutil

import pytest

from deploy.local import RedisServer, ValkeyServer
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.redis.store import RedisStore
from tests.support.pauses import _no_waiting  # noqa: F401
from tests.support.worlds import World, events, run_until_idle

NAMES = ["shop", "user-1", "user-2"]


class Dump:
    """A server's ``dump.rdb``, written on demand and put back before a start."""

    def __init__(self, server, folder):
        self.server, self.backup, self.store = server, folder / "backup.rdb", RedisStore(server.url)

    def save(self):
        client = self.store._client
        client.save()
        shutil.copy(f"{client.config_get('dir')['dir']}/{client.config_get('dbfilename')['dbfilename']}", self.backup)

    def restore(self):
        client = self.store._client
        place = f"{client.config_get('dir')['dir']}/{client.config_get('dbfilename')['dbfilename']}"
        self.server.kill()
        shutil.copy(self.backup, place)
        self.server.start()
        return RedisStore(self.server.url)


class Copy:
    """A folder store, and a copy of its folder as a backup."""

    def __init__(self, folder):
        self.path, self.backup = folder / "state", folder / "backup"
        self.store = DirectoryStore(self.path)

    def save(self):
        shutil.copytree(self.path, self.backup)

    def restore(self):
        shutil.rmtree(self.path)
        shutil.copytree(self.backup, self.path)
        return DirectoryStore(self.path)


@pytest.fixture(params=["redis", "valkey", "folder"])
def backed_up(request, tmp_path):
    if request.param == "folder":
        yield Copy(tmp_path)
        return
    with (RedisServer if request.param == "redis" else ValkeyServer)(durable=False) as server:
        yield Dump(server, tmp_path)


def test_what_was_learned_since_the_backup_is_learned_again_from_the_log(tmp_path, backed_up):
    feedback = {name: list(events(60, seed=number, model=name)) for number, name in enumerate(NAMES)}
    world = World(tmp_path, partitions=2)
    world.store = backed_up.store

    def tell(first, last):
        for name in NAMES:
            world.send(*feedback[name][first:last], key=name)

    # Given a backup at 20 events, a worker that goes on to 40 and stops, and the backup in the store's place
    worker = world.worker()
    tell(0, 20)
    run_until_idle(worker)
    backed_up.save()
    tell(20, 40)
    run_until_idle(worker)
    worker.services.source.close()
    world.store = backed_up.restore()
    assert [world.store.peek(name).version for name in NAMES] == [20] * 3

    # If a worker starts there, I expect the bytes of a run without any backup
    tell(40, 60)
    run_until_idle(world.worker())
    other = World(tmp_path / "other", partitions=2)
    for name in NAMES:
        other.send(*feedback[name], key=name)
    run_until_idle(other.worker())
    assert [world.store.peek(name).version for name in NAMES] == [60] * 3
    assert [world.store.peek(name).state for name in NAMES] == [other.store.peek(name).state for name in NAMES]
    assert [world.store.current(name).version for name in NAMES] == [60] * 3
