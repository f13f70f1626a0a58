"""What Prometheus sees: names and labels that boards and alerts are built on, and what they count."""

from __future__ import annotations

import time

import pytest
from prometheus_client import CollectorRegistry

from omdml.errors import StoreError
from tests.support.worlds import World, events, run_until_idle
from workers.learning.metrics import WorkerMetrics
from workers.node.metrics import NodeMetrics

WORKER = {
    "events": ("model", "kind", "outcome"),
    "events_ahead": ("model",),
    "mistakes": ("model",),
    "mistake_ratio": ("model",),
    "hedge_loss": ("model",),
    "hedge_loss_bound": ("model",),
    "updates": ("model",),
    "modality_weight": ("model", "modality"),
    "learn_seconds": ("model",),
    "lag_events": ("partition",),
    "lag_seconds": (),
    "snapshots": ("outcome",),
    "publish_seconds": (),
    "checkpoint_seconds": (),
    "checkpoint_age_seconds": (),
    "dead_letters": ("reason",),
    "fenced": (),
}
NODE = {
    "snapshot_version": ("model",),
    "snapshots": ("outcome",),
    "freshness_seconds": ("model",),
    "search_seconds": ("model",),
    "gallery_items": ("model",),
    "swap_seconds": ("model",),
    "stale_seconds": (),
}
COUNTERS = {"events", "events_ahead", "mistakes", "updates", "snapshots", "dead_letters", "fenced"}


def read(worker, name, **labels):
    """The value of a sample of a worker's; 0 where there is none."""
    return worker.services.metrics.registry.get_sample_value(f"omdml_{name}", labels) or 0.0


@pytest.mark.parametrize(("metrics", "documented"), [(WorkerMetrics, WORKER), (NodeMetrics, NODE)])
def test_the_documented_metrics_are_there_by_name_type_and_labels(metrics, documented):
    made = {metric._name: metric for metric in vars(metrics(CollectorRegistry())).values() if hasattr(metric, "_name")}
    for name, labels in documented.items():
        metric = made[f"omdml_{name}"]
        assert metric._labelnames == labels
        assert (metric._type == "counter") == (name in COUNTERS)


def test_counters_grow_by_what_was_learned_since_and_a_successor_counts_its_own(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    for seed in range(3):
        world.send(*events(30, seed))
        run_until_idle(worker)
    (model,) = [owned.models.loaded["shop"] for owned in worker.partitions.values()]
    learned = {"mistakes": model.learner.mistakes, "updates": model.learner.updates}
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
    told = b'{"type":"triplet","model":"shop","query":"i0","relevant":"i1","irrelevant":"i2","at":%f}'
    world.send(*(told % (time.time() + ahead) for ahead in (-60.0, 0.01, 60.0)))
    run_until_idle(worker)
    assert read(worker, "events_ahead_total", model="shop") == 1


@pytest.mark.parametrize("taken", [20, 0])
def test_the_lag_is_told_while_the_store_is_away(tmp_path, monkeypatch, taken):
    world = World(tmp_path)
    worker = world.worker()
    world.send(*events(taken))
    run_until_idle(worker)
    number = str(world.log.partitions[0].number)
    assert read(worker, "lag_events", partition=number) == read(worker, "lag_seconds") == 0

    def away(*_):
        raise StoreError("store memory: away")

    with monkeypatch.context() as patch:
        for method in ("claim", "save", "publish", "marks", "move_mark"):
            patch.setattr(world.store, method, away)
        world.send(*events(2000, model="user-9"), key="user-9")
        run_until_idle(worker)
        assert read(worker, "lag_events", partition=number) == 2000
        assert read(worker, "lag_seconds") > 0
    run_until_idle(worker)
    assert read(worker, "lag_events", partition=number) == read(worker, "lag_seconds") == 0


@pytest.mark.parametrize("expelled", [False, True])
def test_the_lag_of_a_partition_is_told_by_its_owner_alone(tmp_path, expelled):
    world = World(tmp_path, partitions=2)
    first = world.worker()
    run_until_idle(first)

    def told(worker):
        sample = worker.services.metrics.registry.get_sample_value
        return [sample("omdml_lag_events", {"partition": str(one.number)}) for one in world.log.partitions]

    assert told(first) == [0, 0]
    second = world.worker()
    if expelled:
        world.log.expel(first.services.source)
    for _ in range(5):
        second.step()
        first.step()
    assert sorted(map(str, told(first))) == sorted(map(str, told(second))) == ["0.0", "None"]
    assert told(first) != told(second)


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
            model.withheld = reason
            metrics.published("user-*", model, "held" if reason else "stored")
        return read(worker, "snapshot_held", model="user-*")

    assert held("mistakes rose", "a leap", "") == 2
    assert held("") == 1
    worker.services.source.close()
    assert held() == 0


def test_waiting_for_events_is_no_time_spent_fetching(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    run_until_idle(worker)
    assert read(worker, "stage_seconds_total", stage="fetch") == 0
    world.send(*events(1))
    run_until_idle(worker)
    assert read(worker, "stage_seconds_total", stage="fetch") > 0
