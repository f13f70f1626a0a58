"""The worker in one process, on memory twins: what it survives, and what ends it with a sentence."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from omdml import LOMDML
from omdml.errors import GapError, SourceError, StoreError, StoreLost
from streams.files.source import FileSink, FileSource
from streams.stores.folder.store import DirectoryStore
from tests.support.worlds import (
    World,
    events,
    learned_directly,
    letters,
    living_on,
    other_than,
    run_until_idle,
    triplets,
)
from workers.configuration.config import WorkerConfig
from workers.learning.worker import LearnerWorker


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_a_worker_that_vanishes_is_succeeded_without_losing_or_doubling(tmp_path, batch):
    world = World(tmp_path)
    for start in range(0, 300, 60):
        world.send(*list(events(300))[start : start + 60])
        worker = world.worker()
        worker.config = type(worker.config)(max_poll_records=batch, checkpoint_interval_s=4.0)
        for _ in range(9):
            worker.step()
        # It is killed: nothing is saved, nothing is said.
        world.log.expel(worker.services.source)
    run_until_idle(world.worker(), turns=400)
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 300).to_bytes()


def test_published_versions_never_go_back_across_a_crash(tmp_path):
    world = World(tmp_path)
    world.send(*events(200))
    seen = []
    for _ in range(6):
        worker = world.worker()
        worker.config = type(worker.config)(max_poll_records=20, checkpoint_interval_s=30.0)
        for _ in range(6):
            worker.step()
            seen.append(world.store.current("shop").version if world.store.current("shop") else -1)
        world.log.expel(worker.services.source)
    assert seen == sorted(seen)
    assert seen[-1] > 0


def test_a_lost_store_is_said_and_nothing_is_learned_anew_in_silence(tmp_path):
    world = World(tmp_path)
    world.send(*events(50))
    worker = world.worker()
    run_until_idle(worker)
    worker.services.source.close()
    world.store = type(world.store)()
    with pytest.raises(StoreLost, match="emptied or is another one"):
        run_until_idle(world.worker())


def test_nothing_is_lost_while_the_store_is_away(tmp_path, monkeypatch):
    world = World(tmp_path)
    world.send(*events(40))
    worker = world.worker()
    worker.step()

    def away(*_, **__):
        raise StoreError("store memory: away")

    with monkeypatch.context() as patch:
        for method in ("claim", "save", "publish", "move_mark", "current"):
            patch.setattr(world.store, method, away)
        world.send(*events(20, seed=1))
        world.send(*events(20, seed=2, model="user-9"), key="user-9")
        run_until_idle(worker)
    run_until_idle(worker)
    twin = LOMDML(dims=dict(world.catalogue.dims), rank=3)
    twin.learn_many(triplets(40), world.catalogue.features)
    twin.learn_many(triplets(20, seed=1), world.catalogue.features)
    assert world.store.claim("shop").checkpoint.state == twin.to_bytes()
    assert world.store.claim("user-9").checkpoint.version == 20


def test_a_fenced_worker_starts_again_from_what_is_stored(tmp_path):
    world = World(tmp_path)
    world.send(*list(events(60))[:30])
    worker = world.worker()
    run_until_idle(worker)
    world.store.claim("shop")  # somebody else
    world.send(*list(events(60))[30:])
    run_until_idle(worker)
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 60).to_bytes()


def test_a_damaged_checkpoint_is_said_and_the_one_before_it_used(tmp_path, capsys):
    world = World(tmp_path)
    world.store = DirectoryStore(tmp_path / "state")
    sent = list(events(300))
    for start in (0, 100):
        world.send(*sent[start : start + 100])
        worker = world.worker()
        run_until_idle(worker)
        world.log.expel(worker.services.source)
    newest = max((tmp_path / "state").rglob("*.checkpoint"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-50])
    world.send(*sent[200:])
    run_until_idle(world.worker())
    assert "damaged" in capsys.readouterr().out
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 300).to_bytes()


def test_dead_letters_that_cannot_be_written_wait_and_hold_the_mark_back(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    sink = worker.services.letters._sink

    def full(*_, **__):
        raise SourceError("letters: disk full")

    with monkeypatch.context() as patch:
        patch.setattr(sink, "send", full)
        unknown = b'{"type":"triplet","model":"shop","query":"i0","relevant":"x","irrelevant":"y"}'
        world.send(*events(10), b"{nonsense", unknown)
        run_until_idle(worker)
        assert world.store.marks(world.log.partitions).get(world.log.partitions[0], 0) == 0
    run_until_idle(worker)
    assert {letter.reason for letter in letters(world)} == {"not_json", "unknown_item"}
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 10).to_bytes()


def test_a_worker_fenced_before_its_first_save_loses_nothing(tmp_path):
    world = World(tmp_path)
    world.send(*events(30))
    worker = world.worker()
    worker.config = type(worker.config)(checkpoint_interval_s=1e9)
    worker._saved_at = float(world.now())
    worker.step()
    world.store.claim("shop")  # somebody else
    world.send(b"{nonsense")
    worker.config = type(worker.config)()
    run_until_idle(worker)
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 30).to_bytes()


def test_a_damaged_checkpoint_in_one_partition_drops_nothing_of_another(tmp_path):
    world = World(tmp_path, partitions=2)
    world.store = DirectoryStore(tmp_path / "state")
    worker = world.worker()
    one, other = (living_on(world, partition) for partition in world.log.partitions)
    for start in (0, 10):
        for name in (one, other):
            world.send(*list(events(30, model=name))[start : start + 10], key=name)
        run_until_idle(worker)
    worker.services.source.close()
    folder = tmp_path / "state" / "models" / one
    newest = max(folder.rglob("*.checkpoint"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-50])
    for name in (one, other):
        world.send(*list(events(30, model=name))[20:], key=name)
    run_until_idle(world.worker())
    assert {name: world.store.claim(name).checkpoint.version for name in (one, other)} == {one: 30, other: 30}


def test_letters_whose_flush_failed_are_sent_again(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    sink, sent = worker.services.letters._sink, []

    def failing(*_):
        raise SourceError("1 of 1 failed")

    with monkeypatch.context() as patch:
        patch.setattr(sink, "send", lambda line, key=None, headers=(): sent.append(line))
        patch.setattr(sink, "flush", failing)
        world.send(b"{nonsense")
        run_until_idle(worker)
        assert sent
        assert letters(world) == []
    run_until_idle(worker)
    assert [letter.reason for letter in letters(world)] == ["not_json"]


def test_letters_are_flushed_and_closed_at_the_end_and_what_cannot_be_is_told(tmp_path, monkeypatch, capsys):
    for refused in (False, True):
        worker = World(tmp_path / str(refused)).worker()
        closed = []

        def close(closed=closed, refused=refused):
            closed.append(True)
            if refused:
                raise SourceError("letters: disk full")

        monkeypatch.setattr(worker.services.letters._sink, "close", close)
        worker.stop()
        worker.run()
        assert closed == [True]
    assert "letters_not_closed" in capsys.readouterr().out


def test_freshness_is_not_counted_from_events_that_were_live_before_a_crash(tmp_path):
    world = World(tmp_path)
    old = [event.replace(b'"at":1.0', b'"at":5.0') for event in events(20)]
    new = [event.replace(b'"at":1.0', b'"at":9.0') for event in events(5, seed=1)]
    world.send(*old)
    worker = world.worker()
    worker.config = type(worker.config)(checkpoint_interval_s=1e9)
    worker._saved_at = 0.0
    for _ in range(5):
        worker.step()
    assert world.store.current("shop").version == 20
    world.log.expel(worker.services.source)
    world.send(*new)
    successor = world.worker()
    successor.config = type(worker.config)(max_poll_records=20)
    run_until_idle(successor)
    snapshot = world.store.load("shop")[1]
    assert (snapshot.version, snapshot.oldest_event_time) == (25, 9.0)


def on_files(world, folder, accept_gap=False):
    """A worker that reads a log in files."""
    services = replace(world.worker().services, source=FileSource(folder), accept_gap=accept_gap)
    return LearnerWorker(services, WorkerConfig(), accept_gap)


def write(folder, *payloads):
    """Append events to a log in files."""
    sink = FileSink(folder)
    for payload in payloads:
        sink.send(payload, key="shop")
    sink.close()


def test_a_truncated_log_stops_the_worker_until_the_gap_is_accepted(tmp_path):
    world, log = World(tmp_path), tmp_path / "log"
    write(log, *events(50))
    worker = on_files(world, log)
    run_until_idle(worker)
    worker.services.source.close()
    (log / "00000001.jsonl").write_bytes(b"")
    refused = on_files(world, log)
    with pytest.raises(GapError, match="omdml worker --accept-gap"):
        run_until_idle(refused)
    refused.services.source.close()
    worker = on_files(world, log, accept_gap=True)
    run_until_idle(worker)
    write(log, *events(5, seed=1))
    run_until_idle(worker)
    assert world.store.load("shop")[1].version == 55


def test_a_log_made_anew_is_refused_until_that_is_accepted(tmp_path):
    world, log = World(tmp_path), tmp_path / "log"
    write(log, *events(50))
    worker = on_files(world, log)
    run_until_idle(worker)
    worker.services.source.close()
    log.rename(tmp_path / "old")
    write(log, *events(20, seed=1))
    refused = on_files(world, log)
    with pytest.raises(GapError, match="made anew"):
        run_until_idle(refused)
    refused.services.source.close()
    assert letters(world) == []
    run_until_idle(on_files(world, log, accept_gap=True))
    assert world.store.load("shop")[1].version == 70


def test_a_store_older_than_the_commit_is_replayed_from_its_mark(tmp_path):
    world = World(tmp_path)
    world.store = DirectoryStore(tmp_path / "state")
    worker = world.worker()
    world.send(*events(30))
    run_until_idle(worker)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    world.send(*events(10, model="user-1"))
    run_until_idle(worker)
    world.log.expel(worker.services.source)
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "copy", tmp_path / "state")
    run_until_idle(world.worker())
    assert world.store.claim("user-1").checkpoint.version == 10


def test_a_commit_behind_the_mark_is_where_a_successor_begins(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    for seed in range(2):
        world.send(*events(10, seed, model="user-1"))
        run_until_idle(worker)
    # It ends after the mark and before the commit; then another server takes over.
    world.log.expel(worker.services.source)
    world.log.group("omdml").committed[world.log.partitions[0]] = 10
    del world.store._models["user-1"].checkpoints[0]
    run_until_idle(world.worker())
    assert world.store.claim("user-1").checkpoint.version == 20


def test_the_oldest_change_is_saved_first(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    for name in ("user-1", "user-2"):
        world.send(*events(5, model=name))
    run_until_idle(worker)
    worker._saved_at = 1e9
    for name in ("user-2", "user-1", "user-2"):
        world.send(*events(5, model=name))
        worker.step()
    saved, save = [], world.store.save

    def noted(checkpoint, *arguments):
        saved.append(checkpoint.model)
        return save(checkpoint, *arguments)

    monkeypatch.setattr(world.store, "save", noted)
    worker._saved_at = 0.0
    run_until_idle(worker)
    assert saved == ["user-2", "user-1"]


def test_a_successor_goes_on_with_event_time_and_prequential_figures(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    world.send(*(event.replace(b'"at":1.0', b'"at":5.0') for event in events(30)))
    run_until_idle(worker)
    before = world.store.claim("shop").checkpoint
    world.log.expel(worker.services.source)
    world.send(*events(10, seed=1))
    run_until_idle(world.worker())
    after = world.store.claim("shop").checkpoint
    assert (before.event_time, after.event_time) == (5.0, 5.0)
    before, after = before.progress["mistakes"], after.progress["mistakes"]
    assert (before["count"], after["count"]) == (30, 40)
    assert after["mistakes"] >= before["mistakes"] > 0


def test_a_stray_event_does_not_hide_its_model_from_its_home(tmp_path):
    world = World(tmp_path, partitions=2)
    worker = world.worker()
    world.send(*list(events(20, model="user-1"))[:10], key="user-1")
    run_until_idle(worker)
    world.log.expel(worker.services.source)
    key = living_on(world, other_than(world, "user-1"))
    successor = world.worker()
    world.send(*events(5, seed=1, model="user-1"), key=key)
    run_until_idle(successor)
    world.send(*list(events(20, model="user-1"))[10:], key="user-1")
    run_until_idle(successor)
    assert [letter.reason for letter in letters(world)] == ["wrong_partition"] * 5
    assert world.store.claim("user-1").checkpoint.version == 20


@pytest.mark.parametrize("name", ["user-1", "shop"])
def test_a_stray_event_and_a_damaged_checkpoint_rewind_only_the_home(tmp_path, name):
    world = World(tmp_path, partitions=2)
    world.store = DirectoryStore(tmp_path / "state")
    worker = world.worker()
    sent = list(events(35, model=name))
    for start in (0, 10, 20):
        world.send(*sent[start : start + 10], key=name)
        run_until_idle(worker)
    world.log.expel(worker.services.source)
    newest = max((tmp_path / "state").rglob("*.checkpoint"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-7])
    key = living_on(world, other_than(world, name))
    world.send(*events(5, seed=9, model=name), key=key)
    successor = world.worker()
    run_until_idle(successor)
    world.send(*sent[30:], key=name)
    run_until_idle(successor)
    assert [letter.reason for letter in letters(world)] == ["wrong_partition"] * 5
    assert world.store.claim(name).checkpoint.version == 35


def test_a_store_that_was_emptied_under_a_living_worker_is_not_marked_again(tmp_path):
    world = World(tmp_path)
    world.send(*events(50))
    worker = world.worker()
    run_until_idle(worker)
    world.store.delete("shop")
    world.store._marks.clear()
    world.send(b"{nonsense")
    with pytest.raises(StoreLost):
        run_until_idle(worker)
    assert world.store.marks(world.log.partitions) == {}


@pytest.mark.parametrize("both", [False, True], ids=["the younger model alone", "both"])
def test_an_older_copy_without_a_younger_model_is_noticed_under_a_living_worker(tmp_path, both):
    # Given a copy of a store, and a model that began after it
    world = World(tmp_path, models={"shop": {"learner": "lomdml", "rank": 3}, "m-*": {"learner": "lomdml", "rank": 3}})
    world.store = DirectoryStore(tmp_path / "state")
    world.send(*events(40))
    worker = world.worker()
    run_until_idle(worker)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    world.send(*events(30, seed=1, model="m-new"), *events(20, seed=2))
    run_until_idle(worker)

    # If that copy takes the store's place while the worker lives, and more events come
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "copy", tmp_path / "state")
    world.send(*events(10, seed=3, model="m-new"))
    if both:
        world.send(*events(10, seed=4))
    run_until_idle(worker)

    # I expect the worker to go on, and every event to be learned once.
    models = {name: world.store.peek(name).version for name in world.store.models()}
    assert models == {"m-new": 40, "shop": 70 if both else 60}


def test_a_store_that_was_emptied_stops_a_worker_that_is_about_to_save(tmp_path):
    world = World(tmp_path)
    world.store = DirectoryStore(tmp_path / "state")
    world.send(*events(50))
    worker = world.worker()
    run_until_idle(worker)
    shutil.rmtree(tmp_path / "state")
    DirectoryStore(tmp_path / "state")
    world.send(*events(5, seed=1))
    with pytest.raises(StoreLost, match="emptied or is another one"):
        run_until_idle(worker)
