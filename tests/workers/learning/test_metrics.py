"""What Prometheus sees of a worker: what its metrics count, and what they say when something is wrong."""

from __future__ import annotations

import time

import pytest
from prometheus_client import CollectorRegistry

from omdml.errors import SourceError, StoreError
from omdml.streams.protocols.log import Partition
from omdml.workers.learning.measures import Arrivals
from omdml.workers.learning.metrics import WorkerMetrics
from omdml.workers.learning.partition.pending_letters import LettersAway
from omdml.workers.model.judging.guard import VersionComparison
from omdml.workers.model.trails import TRAILS
from omdml.workers.telemetry.registry import ModelLabels
from tests.support.learning.worker_metrics import read
from tests.support.worlds import World, events, living_on, paced, run_until_idle


def test_counters_grow_by_what_was_learned_since_and_a_successor_counts_its_own(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    for seed in range(3):
        world.send(*events(30, seed))
        run_until_idle(worker)
    (model,) = [owned.models.loaded["shop"] for owned in worker.partitions.values()]
    learned = {"comparisons": 90, "mistakes": model.learner.mistakes, "updates": model.learner.updates}
    assert {name: read(worker, f"{name}_total", model="shop") for name in learned} == learned
    assert read(worker, "events_total", model="shop", kind="triplet", outcome="learned") == 90
    world.log.expel(worker.services.source)
    successor = world.worker()
    world.send(*events(10, seed=9))
    run_until_idle(successor)
    (model,) = [owned.models.loaded["shop"] for owned in successor.partitions.values()]
    assert read(successor, "updates_total", model="shop") == model.learner.updates - learned["updates"]


def test_refused_events_are_counted_by_kind(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    unknown = b'{"type":"triplet","model":"shop","query":"i0","relevant":"x","irrelevant":"y"}'
    world.send(b"{nonsense", unknown, b'{"type":"pair","model":"shop","left":"i0","right":"i1","similar":true}')
    run_until_idle(worker)
    for model, kind in (("unknown", "unknown"), ("shop", "triplet"), ("shop", "pair")):
        assert read(worker, "events_total", model=model, kind=kind, outcome="refused") == 1
    assert read(worker, "dead_letters_total", reason="unknown_item") == 1


def test_events_that_say_they_happened_after_they_were_logged_are_counted(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    template = b'{"type":"triplet","model":"shop","query":"i0","relevant":"i1","irrelevant":"i2","at":%f}'
    world.send(*(template % (time.time() + ahead) for ahead in (-60.0, 0.01, 60.0)))
    run_until_idle(worker)
    assert read(worker, "events_ahead_total", model="shop") == 1


@pytest.mark.parametrize("taken", [20, 0])
def test_the_lag_is_reported_while_the_store_is_away(tmp_path, monkeypatch, taken):
    world = World(tmp_path)
    worker = world.worker()
    world.send(*events(taken))
    run_until_idle(worker)
    number = str(world.log.partitions[0].number)
    assert read(worker, "lag_offsets", partition=number) == read(worker, "lag_seconds", partition=number) == 0

    def away(*_):
        raise StoreError("store memory: away")

    with monkeypatch.context() as patch:
        for method in ("claim", "save", "publish", "marks", "move_mark"):
            patch.setattr(world.store, method, away)
        world.send(*events(2000, model="user-9"), key="user-9")
        run_until_idle(worker)
        assert read(worker, "lag_offsets", partition=number) == 2000
        assert read(worker, "lag_seconds", partition=number) > 0
        assert read(worker, "waiting", dependency="store") == 1
    run_until_idle(worker)
    assert read(worker, "lag_offsets", partition=number) == read(worker, "lag_seconds", partition=number) == 0


@pytest.mark.parametrize("expelled", [False, True])
def test_the_lag_of_a_partition_is_reported_by_its_owner_alone(tmp_path, expelled):
    world = World(tmp_path, partitions=2)
    first = world.worker()
    run_until_idle(first)

    def lags(worker):
        sample = worker.services.metrics.registry.get_sample_value
        return [
            sample("omdml_worker_lag_offsets", {"partition": str(partition.number)})
            for partition in world.log.partitions
        ]

    assert lags(first) == [0, 0]
    second = world.worker()
    if expelled:
        world.log.expel(first.services.source)
    for _ in range(5):
        second.step()
        first.step()
    assert sorted(map(str, lags(first))) == sorted(map(str, lags(second))) == ["0.0", "None"]
    assert lags(first) != lags(second)


@pytest.mark.parametrize("expelled", [False, True])
def test_gauges_of_a_single_model_are_its_owners_alone(tmp_path, expelled):
    world = World(tmp_path)
    first = world.worker()
    world.send(*events(30))
    run_until_idle(first)
    (owned,) = first.partitions.values()
    model, metrics = owned.models.loaded["shop"], first.services.metrics
    model.judge.guard.compared = VersionComparison(30, 0, 0.5, 0.25, 9)
    metrics.output.count_published("shop", model, "stored")

    def gauges(worker):
        return {
            sample.name
            for family in worker.services.metrics.registry.collect()
            for sample in family.samples
            if family.type == "gauge" and sample.labels.get("model") == "shop"
        }

    both = {"omdml_worker_models_held", "omdml_worker_held_since_timestamp_seconds"}
    alone = {"learned_version", "modality_weight", "hedge_loss", "hedge_loss_bound", "guard_margin", "guard_doubt"}
    assert gauges(first) >= both | {f"omdml_worker_{name}" for name in alone}
    if expelled:
        world.log.expel(first.services.source)
        run_until_idle(first, 2)
    else:
        first.services.source.close()
    assert gauges(first) == both


def test_withheld_models_of_a_pattern_are_counted_until_they_go_live_or_away(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    for name in ("user-1", "user-2", "user-3"):
        world.send(*events(5, model=name), key=name)
    run_until_idle(worker)
    (owned,) = worker.partitions.values()
    models, metrics = [owned.models.loaded[f"user-{number}"] for number in (1, 2, 3)], worker.services.metrics

    def held(*reasons):
        for model, reason in zip(models, reasons, strict=False):
            model.judge.withheld = reason
            metrics.output.count_published("user-*", model, "held" if reason else "stored")
        return read(worker, "models_held", model="user-*")

    assert held("mistakes rose", "a leap", "") == 2
    first = read(worker, "held_since_timestamp_seconds", model="user-*")
    assert time.time() - 60 < first <= time.time()
    assert held("") == 1
    worker.services.source.close()
    assert held() == read(worker, "held_since_timestamp_seconds", model="user-*") == 0


def test_waiting_for_events_is_no_time_spent_fetching(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    run_until_idle(worker)
    assert read(worker, "stage_seconds_total", stage="fetch") == 0
    world.send(*events(1))
    run_until_idle(worker)
    assert read(worker, "stage_seconds_total", stage="fetch") > 0
    assert read(worker, "stage_seconds_total", stage="idle") > 0


def lag(worker, partition=0):
    return read(worker, "lag_seconds", partition=str(partition))


def test_the_lag_is_the_age_of_the_oldest_record_that_was_not_taken(tmp_path):
    world, began = World(tmp_path, partitions=2), time.time()
    worker = world.worker()
    run_until_idle(worker)
    here, there = world.log.partitions
    # An hour of silence, then one click: nothing is an hour behind.
    worker._measures.set_backlog({})
    worker.services.metrics.intake.set_newest_taken(here, time.time() - 3600)
    world.send(*events(1, model=living_on(world, here)), key=living_on(world, here))
    worker._measures.set_backlog({})
    assert lag(worker, here.number) <= time.time() - began
    # Beside a partition that moves, one waits for a record of ten minutes ago.
    stalled = world.log.send(b"{}", living_on(world, there), timestamp=time.time() - 600)
    worker._measures.set_backlog({there: [stalled]})
    assert 600 <= lag(worker, there.number) <= 600 + time.time() - began
    assert lag(worker, here.number) <= time.time() - began


def test_the_lag_grows_while_the_loop_hangs(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    run_until_idle(worker)
    worker.services.metrics.intake.set_backlog(world.log.partitions[0], 7, time.time() - 100)
    first = lag(worker)
    time.sleep(0.01)
    assert lag(worker) > first >= 100


def test_an_unfetched_record_is_as_old_as_the_look_that_first_found_it():
    arrivals, here = Arrivals(), Partition("log", 0)
    assert arrivals.oldest(here, 10, 10, now=1.0) is None
    assert arrivals.oldest(here, 10, 15, now=2.0) == 2.0
    assert arrivals.oldest(here, 12, 20, now=3.0) == 2.0
    assert arrivals.oldest(here, 15, 20, now=4.0) == 3.0
    assert arrivals.oldest(here, 20, 20, now=5.0) is None


def test_a_backlog_is_as_old_as_the_newest_record_that_was_taken_of_it(tmp_path):
    world = World(tmp_path)
    (here,) = world.log.partitions
    for payload in events(3):
        world.log.send(payload, "shop", timestamp=time.time() - 7200)
    worker = world.worker()
    worker.step()
    source = worker.services.source
    # The source says that one record of three was polled; it was taken.
    source.progress = lambda: {here: (1, 3)}
    worker._measures.set_backlog({})
    assert 7200 <= lag(worker) < 7300
    # A record that comes later is not so old.
    source.progress = lambda: {here: (3, 4)}
    worker._measures.set_backlog({})
    assert lag(worker) < 3600


def test_an_unsaved_change_keeps_its_age_though_others_are_saved(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    run_until_idle(worker)
    assert read(worker, "oldest_unsaved_timestamp_seconds") == 0
    worker.services.allowance.left = worker.services.allowance.rate = worker.services.allowance.burst = 0.0
    for name in ("user-1", "user-2", "user-3"):
        world.send(*events(5, model=name), key=name)
    worker.step()
    (owned,) = worker.partitions.values()
    unsaved = dict(owned.models.unsaved)
    worker.schedule.save(worker.services.clock())
    # One portion is saved at least.
    assert 0 < len(owned.models.unsaved) < len(unsaved)
    assert time.time() - 600 < read(worker, "oldest_unsaved_timestamp_seconds") <= time.time()
    run_until_idle(worker)
    assert not owned.models.unsaved
    assert read(worker, "oldest_unsaved_timestamp_seconds") == 0


def test_a_worker_says_what_it_waits_for_and_that_its_loop_turns(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    run_until_idle(worker)
    monkeypatch.setattr("omdml.workers.learning.worker.RETRY_S", 0.0)
    for error, waits in ((StoreError("away"), "store"), (LettersAway("away"), "letters"), (SourceError("away"), "log")):
        with monkeypatch.context() as patch:
            patch.setattr(worker.schedule, "publish_and_save", raising(error))
            worker.step()
        waiting = {name: read(worker, "waiting", dependency=name) for name in ("log", "store", "letters")}
        assert waiting == {**dict.fromkeys(waiting, 0.0), waits: 1.0}
        assert time.time() - 60 < read(worker, "last_turn_timestamp_seconds") <= time.time()
    run_until_idle(worker, 2)
    assert not any(read(worker, "waiting", dependency=name) for name in ("log", "store", "letters"))


def raising(error):
    def fail(*_):
        raise error

    return fail


def test_series_are_there_from_the_start_at_zero():
    value = WorkerMetrics(CollectorRegistry(), ModelLabels(["shop", "user-*"])).registry.get_sample_value
    labels = {"model": "user-*", "kind": "pair", "outcome": "refused"}
    assert value("omdml_worker_events_total", labels) == 0
    assert value("omdml_worker_dead_letters_total", {"reason": "unknown_item"}) == 0
    assert value("omdml_worker_waiting", {"dependency": "store"}) == 0
    assert value("omdml_worker_comparisons_total", {"model": "shop"}) == 0
    assert value("omdml_worker_guard_decisions_total", {"model": "shop", "decision": "held", "reason": "worse"}) == 0
    assert value("omdml_worker_models_held", {"model": "other"}) == 0


def test_models_beyond_the_limit_share_a_label_and_patterns_have_no_gauges(tmp_path):
    registry = CollectorRegistry()
    metrics = WorkerMetrics(registry, ModelLabels(["shop", "user-*", "late"], limit=2))
    metrics.intake.count_events("late", {"triplet": 3}, "learned")
    labels = {"kind": "triplet", "outcome": "learned"}
    assert registry.get_sample_value("omdml_worker_events_total", {**labels, "model": "other"}) == 3
    world = World(tmp_path)
    worker = world.worker()
    world.send(*events(5), *events(5, model="user-1"))
    run_until_idle(worker)
    assert read(worker, "learned_version", model="shop") == 5
    value = worker.services.metrics.registry.get_sample_value
    assert value("omdml_worker_learned_version", {"model": "user-*"}) is None
    assert read(worker, "comparisons_total", model="user-*") == 5


def test_time_inside_a_stage_that_is_another_stage_is_counted_once():
    metrics, begin = WorkerMetrics(CollectorRegistry()), time.perf_counter()
    with metrics.loop.timed("learn"):
        time.sleep(0.01)
        with metrics.loop.timed("judge"):
            time.sleep(0.03)
    spent = [metrics.registry.get_sample_value("omdml_worker_stage_seconds_total", {"stage": name})
             for name in ("learn", "judge")]  # fmt: skip
    assert spent[0] >= 0.01
    assert spent[1] >= 0.03
    assert sum(spent) <= time.perf_counter() - begin


def test_partitions_that_come_and_go_are_counted(tmp_path):
    world = World(tmp_path, partitions=2)
    worker = world.worker()
    run_until_idle(worker)
    assert read(worker, "owned_partitions", topic="") == read(worker, "topic_partitions", topic="") == 2
    assert read(worker, "rebalances_total", kind="assigned") == 2
    # Thrown out of its group, a worker loses its partitions, joins again, and gives them up as it ends.
    world.log.expel(worker.services.source)
    run_until_idle(worker)
    worker.services.source.close()
    counts = {kind: read(worker, "rebalances_total", kind=kind) for kind in ("assigned", "lost", "revoked")}
    assert counts == {"assigned": 4, "lost": 2, "revoked": 2}


def test_snapshots_tell_the_trails_of_the_last_publications_and_lose_no_event(tmp_path):
    world = World(tmp_path)
    worker = paced(world.worker(), publish=0.0, save=1e9)
    count = TRAILS + 3
    for seed in range(count):
        world.send(*events(2, seed))
        run_until_idle(worker, 3)
    trails = world.store.load("shop")[1].trails
    assert sum(trail.events for trail in trails) == 2 * count
    assert len(trails) <= TRAILS + 1
    assert [trail.version for trail in trails] == sorted({trail.version for trail in trails})
    assert trails[-1].version == 2 * count
    assert all(trail.oldest <= trail.taken <= trail.learned for trail in trails)
