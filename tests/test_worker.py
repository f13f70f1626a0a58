"""The worker in one process, on memory twins: what is learned, published, saved, refused and recovered."""

from __future__ import annotations

import json
import socket

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from omdml import LOMDML
from omdml.errors import ConfigurationError, SourceError, StoreError, StoreLost
from streams.catalogues.build import add_items
from streams.letters import read_letters
from streams.stores.directory import DirectoryStore
from tests.worlds import World, events, items, triplets
from workers.lifecycle import serve_metrics


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr("workers.learner.STOP_S", 0.0)


def run_until_idle(worker, turns=50):
    """Take turns until nothing is waiting."""
    for _ in range(turns):
        worker.step()


def letters(world):
    """Dead letters so far."""
    return list(read_letters(record for part in world.graves.partitions for record in world.graves.read(part, 0, 1000)))


def learned_directly(world, count):
    """What a learner makes of the same events without any worker."""
    model = LOMDML(dims=dict(world.catalogue.dims), rank=3)
    model.learn_many(triplets(count), world.catalogue.features)
    return model


def test_what_is_sent_is_learned_published_and_saved(tmp_path):
    world = World(tmp_path)
    world.send(*events(100))
    run_until_idle(world.worker())
    twin = learned_directly(world, 100)
    _, snapshot = world.store.load("shop")
    assert snapshot.version == 100
    np.testing.assert_array_equal(snapshot.metric.matrices["shape"], twin.metric.matrices["shape"])
    assert world.store.claim("shop").checkpoint.state == twin.to_bytes()


def test_version_0_is_live_before_the_first_event(tmp_path):
    world = World(tmp_path)
    run_until_idle(world.worker(), turns=3)
    _, snapshot = world.store.load("shop")
    assert snapshot.version == 0


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_a_worker_that_vanishes_is_succeeded_without_losing_or_doubling(tmp_path, batch):
    world = World(tmp_path)
    for start in range(0, 300, 60):
        world.send(*list(events(300))[start : start + 60])
        worker = world.worker()
        worker.config = type(worker.config)(max_poll_records=batch, checkpoint_interval_s=4.0)
        for _ in range(9):
            worker.step()
        world.log.expel(worker.services.source)  # killed: nothing is saved, nothing is said
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


def test_each_refused_event_is_a_dead_letter_with_its_reason_and_the_others_are_learned(tmp_path):
    world = World(tmp_path)
    good = list(events(10))
    inline = {"i0": {"shape": [0.0] * 9, "noise": [0.0] * 5}}
    bad = {
        "not_json": b"{nonsense",
        "invalid": b'{"type":"triplet","model":"shop","query":"i0","relevant":"i1"}',
        "oversize": b'{"type":"triplet","model":"shop","query":"' + b"x" * 10_000_000 + b'"}',
        "empty_list": b'{"type":"ranking","model":"shop","query":"i0","relevant":[],"irrelevant":["i1"]}',
        "unknown_model": b'{"type":"triplet","model":"nobody","query":"i0","relevant":"i1","irrelevant":"i2"}',
        "unknown_item": b'{"type":"triplet","model":"shop","query":"i0","relevant":"i1","irrelevant":"zebra"}',
        "not_accepted": b'{"type":"pair","model":"shop","left":"i0","right":"i1","similar":true}',
        "dimension": json.dumps({"type": "triplet", "model": "shop", "query": "i0", "relevant": "i1",
                                 "irrelevant": "i2", "features": {"i0": {**inline["i0"], "shape": [0.0]}}}).encode(),
        "missing_modality": json.dumps({"type": "triplet", "model": "shop", "query": "i0", "relevant": "i1",
                                        "irrelevant": "i2", "features": {"i0": {"shape": [0.0] * 9}}}).encode(),
        "too_many": json.dumps({"type": "ranking", "model": "shop", "query": "i0", "relevant": ["i1"] * 40,
                                "irrelevant": ["i2"] * 40}).encode(),
    }  # fmt: skip
    for event, payload in zip(good, bad.values(), strict=True):
        world.send(event, payload)
    run_until_idle(world.worker())
    assert {letter.reason for letter in letters(world)} == set(bad)
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 10).to_bytes()


def test_an_event_that_brings_the_catalogues_own_vectors_learns_the_same(tmp_path):
    world, other = World(tmp_path / "one"), World(tmp_path / "other")
    raw, _ = items()
    world.send(*events(30))
    for event in events(30):
        body = json.loads(event)
        row = int(body["query"][1:])
        body["features"] = {body["query"]: {name: x[row].tolist() for name, x in raw.items()}}
        other.send(json.dumps(body).encode())
    for each in (world, other):
        run_until_idle(each.worker())
    states = [each.store.claim("shop").checkpoint.state for each in (world, other)]
    assert states[0] == states[1]


def test_a_ranking_is_learned_as_all_its_triplets_relevant_major(tmp_path):
    world = World(tmp_path)
    world.send(b'{"type":"ranking","model":"shop","query":"i0","relevant":["i1","i2"],"irrelevant":["i3","i4"]}')
    run_until_idle(world.worker())
    twin = LOMDML(dims=dict(world.catalogue.dims), rank=3)
    twin.learn_many([(0, 1, 3), (0, 1, 4), (0, 2, 3), (0, 2, 4)], world.catalogue.features)
    assert world.store.claim("shop").checkpoint.state == twin.to_bytes()


def test_models_of_a_pattern_learn_apart_from_each_other(tmp_path):
    world = World(tmp_path)
    for name in ("user-1", "user-2"):
        world.send(*events(20, seed=int(name[-1]), model=name), key=name)
    run_until_idle(world.worker())
    assert world.store.models() == ["user-1", "user-2"] or set(world.store.models()) >= {"user-1", "user-2"}
    one, two = (world.store.load(name)[1] for name in ("user-1", "user-2"))
    assert (one.version, two.version) == (20, 20)
    assert not np.array_equal(one.metric.matrices["shape"], two.metric.matrices["shape"])


def test_a_diverging_event_is_refused_and_learning_goes_on(tmp_path):
    world = World(tmp_path, step="ogd", eta=1e30)
    world.send(*events(20))
    run_until_idle(world.worker())
    reasons = {letter.reason for letter in letters(world)}
    assert reasons <= {"diverged"}
    assert world.store.claim("shop").checkpoint.version == 20 - len(letters(world))


def test_a_lost_store_is_said_and_nothing_is_learned_anew_in_silence(tmp_path):
    world = World(tmp_path)
    world.send(*events(50))
    worker = world.worker()
    run_until_idle(worker)
    worker.services.source.close()
    world.store = type(world.store)()
    with pytest.raises(StoreLost, match="lost or is another one"):
        run_until_idle(world.worker())


def test_other_hyperparameters_than_those_learned_with_are_refused(tmp_path):
    world = World(tmp_path)
    world.send(*events(5))
    worker = world.worker()
    run_until_idle(worker)
    worker.services.source.close()
    again = World(tmp_path, eta=0.5)
    again.log, again.store = world.log, world.store
    world.send(*events(5))
    with pytest.raises(ConfigurationError, match="other settings"):
        run_until_idle(again.worker())


def test_while_the_store_is_away_nothing_is_lost_and_the_worker_goes_on_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr("workers.learner.RETRY_S", 0.0)
    world = World(tmp_path)
    world.send(*events(40))
    worker = world.worker()
    worker.step()

    def away(*_, **__):
        raise StoreError("store memory: away")

    with monkeypatch.context() as patch:
        for method in ("claim", "save", "publish", "move_marks", "current"):
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


def test_two_workers_share_partitions_and_every_model_is_learned_once(tmp_path):
    world = World(tmp_path, partitions=4)
    workers = [world.worker(), world.worker()]
    names = [f"user-{number}" for number in range(12)]
    for _ in range(3):
        for name in names:
            world.send(*events(5, model=name), key=name)
        for _ in range(30):
            for worker in workers:
                worker.step()
    assert {name: world.store.claim(name).checkpoint.version for name in names} == dict.fromkeys(names, 15)


def test_events_of_a_model_that_come_by_another_partition_are_dead_letters(tmp_path):
    world = World(tmp_path, partitions=4)
    worker = world.worker()
    world.send(*list(events(8))[:5])
    run_until_idle(worker)
    home = worker.services.source.home("shop")
    key = next(key for key in map(str, range(100)) if worker.services.source.home(key) != home)
    world.send(*events(3), key=key)
    world.send(*list(events(8))[5:])
    run_until_idle(worker)
    assert [letter.reason for letter in letters(world)] == ["wrong_partition"] * 3
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 8).to_bytes()


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


def test_a_port_in_use_is_said_before_anything_is_opened(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match=f"worker.bind {address}: .*choose another port"):
            serve_metrics(address, CollectorRegistry())


def test_an_item_added_to_the_catalogue_is_known_to_the_next_event_that_names_it(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    world.send(*list(events(10))[:5])
    run_until_idle(worker)
    more = {name: matrix[:1] + 0.5 for name, matrix in items()[0].items()}
    add_items(tmp_path / "items", more, ids=["new"])
    world.send(b'{"type":"triplet","model":"shop","query":"new","relevant":"i1","irrelevant":"i2"}')
    run_until_idle(worker)
    assert letters(world) == []
    assert world.store.load("shop")[1].version == 6


def test_dead_letters_that_cannot_be_written_wait_and_hold_the_mark_back(tmp_path, monkeypatch):
    monkeypatch.setattr("workers.learner.RETRY_S", 0.0)
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
    homes = {name: worker.services.source.home(name) for name in map("user-{}".format, range(9))}
    one = "user-0"
    other = next(name for name, home in homes.items() if home != homes[one])
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


def test_strays_in_the_first_second_do_not_fence_the_worker_itself(tmp_path):
    world = World(tmp_path, partitions=4)
    worker = world.worker()
    home = worker.services.source.home("shop")
    key = next(key for key in map(str, range(100)) if worker.services.source.home(key) != home)
    world.send(*events(20))
    world.send(*events(3), key=key)
    run_until_idle(worker)
    learned = [world.store.load("shop")[1].version, len(letters(world))]
    assert sorted(learned) == [3, 20]  # whichever partition came first is the home, nothing is lost


def test_letters_whose_flush_failed_are_sent_again(tmp_path, monkeypatch):
    monkeypatch.setattr("workers.learner.RETRY_S", 0.0)
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


def test_a_model_name_no_store_can_hold_is_a_dead_letter(tmp_path):
    world = World(tmp_path)
    world.store = DirectoryStore(tmp_path / "state")
    world.send(*events(1, model="user-" + "x" * 300))
    world.send(*events(10))
    run_until_idle(world.worker())
    assert [letter.reason for letter in letters(world)] == ["invalid"]
    assert world.store.load("shop")[1].version == 10


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
