"""The worker in one process, on memory twins: what is learned, published, saved, refused and recovered."""

from __future__ import annotations

import itertools
import json
import socket
from dataclasses import replace

import numpy as np
import pytest
import structlog
from prometheus_client import CollectorRegistry

from omdml import LOMDML
from omdml.errors import ConfigurationError
from omdml.streams.catalogues.building.build import add_items, build_catalogue
from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.configuration.config import WorkerConfig
from omdml.workers.configuration.process import serve_metrics
from omdml.workers.learning.worker import LearnerWorker
from tests.support.worlds import (
    World,
    events,
    items,
    learned_directly,
    letters,
    living_on,
    other_than,
    refuse,
    run_until_idle,
)


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


def test_a_refused_event_is_a_letter_with_its_reason_and_others_are_learned(tmp_path):
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
    assert set(world.store.models()) >= {"user-1", "user-2"}
    first, second = (world.store.load(name)[1] for name in ("user-1", "user-2"))
    assert (first.version, second.version) == (20, 20)
    assert not np.array_equal(first.metric.matrices["shape"], second.metric.matrices["shape"])


def test_a_diverging_event_is_refused_and_learning_goes_on(tmp_path):
    world = World(tmp_path, step="ogd", eta=1e30)
    world.send(*events(20))
    run_until_idle(world.worker())
    assert {letter.reason for letter in letters(world)} == {"diverged"}
    assert world.store.claim("shop").checkpoint.version == 20 - len(letters(world)) > 0


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
    world.send(*events(3), key=living_on(world, other_than(world, "shop")))
    world.send(*list(events(8))[5:])
    run_until_idle(worker)
    assert [letter.reason for letter in letters(world)] == ["wrong_partition"] * 3
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 8).to_bytes()


def test_a_port_of_the_metrics_that_is_in_use_is_reported_with_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match=f"worker.bind {address}: .*choose another port"):
            serve_metrics(address, CollectorRegistry())


def test_an_added_item_is_known_to_the_next_event_that_names_it(tmp_path):
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


def test_a_model_name_no_store_can_hold_is_a_dead_letter(tmp_path):
    world = World(tmp_path)
    world.store = DirectoryStore(tmp_path / "state")
    world.send(*events(1, model="user-" + "x" * 300))
    world.send(*events(10))
    run_until_idle(world.worker())
    assert [letter.reason for letter in letters(world)] == ["invalid"]
    assert world.store.load("shop")[1].version == 10


def test_a_new_generation_is_published_without_waiting_for_a_click(tmp_path):
    world = World(tmp_path)
    world.send(*events(50))
    worker = world.worker()
    run_until_idle(worker)
    worker.services.source.close()
    build_catalogue(tmp_path / "items", items(seed=9)[0], ids=[f"i{row}" for row in range(120)], replace=True)
    world.catalogue = MappedCatalogue(tmp_path / "items")
    run_until_idle(world.worker())
    snapshot = world.store.load("shop")[1]
    assert (snapshot.generation, snapshot.version) == (world.catalogue.generation, 50)


def test_publications_under_load_come_once_an_interval_on_average(tmp_path):
    world, now = World(tmp_path), [0.0]
    services = replace(world.worker().services, clock=lambda: now[0])
    worker = LearnerWorker(services, WorkerConfig(publish_interval_s=0.5, checkpoint_interval_s=1e9))
    live = []
    for turn, event in enumerate(events(60)):
        now[0] = turn / 8
        world.send(event)
        worker.step()
        live.append(world.store.current("shop").version)
    published = [turn for turn in range(1, 60) if live[turn] > live[turn - 1]]
    # After a rest the first two may follow each other at once.
    assert published[0] == 1
    assert {after - before for before, after in itertools.pairwise(published[1:])} == {4}


def test_events_after_a_late_publication_need_not_wait_for_an_interval(tmp_path):
    world, now = World(tmp_path), [0.0]
    services = replace(world.worker().services, clock=lambda: now[0])
    worker = LearnerWorker(services, WorkerConfig(publish_interval_s=0.5, checkpoint_interval_s=1e9))
    # Events come twice a second. The worker is late for the fourth of them.
    for turn, event in enumerate(events(9)):
        now[0] = turn / 2 + 0.375 * (turn == 3)
        world.send(event)
        worker.step()
        # Every turn publishes what it learned.
        assert world.store.current("shop").version == turn + 1
        assert not any(partition.models.unpublished for partition in worker.partitions.values())


def test_clicks_every_20_ms_go_live_at_once_even_if_a_poll_splits_them(tmp_path):
    world, now = World(tmp_path), [0.0]
    services = replace(world.worker().services, clock=lambda: now[0])
    worker = LearnerWorker(services, WorkerConfig(checkpoint_interval_s=1e9))
    # Clicks come every 20 ms, and two polls bring only a part of them.
    polls = sorted([*(turn / 50 for turn in range(20)), 0.104, 0.204])
    for version, (now[0], event) in enumerate(zip(polls, events(len(polls)), strict=True), start=1):
        world.send(event)
        worker.step()
        assert world.store.current("shop").version == version
        assert not any(partition.models.unpublished for partition in worker.partitions.values())


class Slow:
    """A store that takes 0.1 s, by a clock that the test moves, to publish anything."""

    def __init__(self, store, now):
        self._store, self._now, self.published = store, now, []

    def __getattr__(self, name):
        return getattr(self._store, name)

    def publish_all(self, snapshots, assumed=None):
        self._now[0] += 0.1 * bool(snapshots)
        self.published += [self._now[0]] * bool(snapshots)
        return self._store.publish_all(snapshots, assumed)


def slow_world(tmp_path, **options):
    """A world with a slow store and a clock that the test moves, and a worker in it."""
    world, now = World(tmp_path), [0.0]
    world.store = Slow(world.store, now)
    services = replace(world.worker().services, clock=lambda: now[0])
    config = WorkerConfig(publish_interval_s=0.02, checkpoint_interval_s=1e9, **options)
    return world, now, LearnerWorker(services, config)


@pytest.mark.parametrize(("a_poll", "seconds"), [(100, 0.1 / 0.75), (1, 2.0)])
def test_publishing_takes_its_share_of_the_time_at_most_and_less_if_behind(tmp_path, a_poll, seconds):
    world, now, worker = slow_world(tmp_path, max_poll_records=a_poll)
    for event in events(1200):
        now[0] += 0.01
        world.send(event)
        worker.step()
    apart = np.diff(world.store.published)
    assert len(apart) > 3
    assert apart.min() >= seconds - 1e-9
    assert apart.max() < seconds + 0.05


def test_a_worker_says_once_that_it_waits_and_once_that_it_goes_on(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    world.send(*events(5))
    with structlog.testing.capture_logs() as lines:
        with monkeypatch.context() as outage:
            outage.setattr(world.store, "positions", refuse)
            run_until_idle(worker, 5)
        run_until_idle(worker)
    names = [line["event"] for line in lines if line["event"].startswith("learning_")]
    assert names == ["learning_waits", "learning_goes_on"]


def test_what_is_slow_to_publish_is_published_at_once_when_nothing_waits(tmp_path):
    world, now, worker = slow_world(tmp_path)
    for event in events(20):
        world.send(event)
        now[0] += 0.03
        worker.step()
        before = len(world.store.published)
        # Nothing is left in the log: the next turn need not wait for its share.
        now[0] += 0.03
        worker.step()
        assert worker.services.store.current("shop").version == worker_version(worker)
        assert len(world.store.published) - before <= 1


def worker_version(worker):
    """Version of the model in memory."""
    (model,) = (model for owned in worker.partitions.values() for model in owned.models.loaded.values())
    return model.learner.version
