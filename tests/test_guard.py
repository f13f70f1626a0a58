"""The guard: what it keeps from going live, what it lets through, and what operators see of it."""

from __future__ import annotations

import math
import re

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.metrics import ProjectionMetric
from tests.worlds import DIMS, World, events, items, run_until_idle, triplets
from workers.config import GuardConfig, WorkerConfig
from workers.guard import FEWEST, NEAR, Guard, not_finite, sizes, weight_moved
from workers.hold_out import HeldEvent, HoldOut

NEVER = 1e9  # seconds
TABLE, _ = items()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr("workers.learner.STOP_S", 0.0)
    monkeypatch.setattr("workers.guard.SHARE", math.inf)  # there is always time to judge


# candidates
def turned(angle, scale=1.0):
    """A metric that asks the modality which tells labels, and the further it is turned the more the other one."""
    weights = {"shape": math.cos(angle) ** 2, "noise": math.sin(angle) ** 2}
    return ProjectionMetric(weights, {name: scale * np.eye(size) for name, size in DIMS.items()})


def told(count=256):
    """So many events held back, which the labels answer."""
    return HoldOut(count=count, kept=[HeldEvent([row]) for row in triplets(count).tolist()])


def quality(metric):
    """Mean margin on what was held back."""
    return told().margins(metric, TABLE).mean()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("hold_out", [HoldOut(), told()], ids=["nothing held back", "events held back"])
@pytest.mark.parametrize("on", [True, False])
def test_a_metric_that_is_not_finite_never_goes_live(value, hold_out, on):
    guard = Guard(GuardConfig(on=on), turned(0.3))
    broken = turned(0.3).matrices["shape"].copy()
    broken[0, 0] = value
    candidate = ProjectionMetric({"shape": 1.0, "noise": 0.0}, {"shape": broken, "noise": np.eye(DIMS["noise"])})
    assert "not finite" in not_finite(candidate)
    assert guard.judge(candidate, hold_out, TABLE) == not_finite(candidate) == guard.held
    assert guard.judge(turned(0.3), hold_out, TABLE) == guard.held == ""


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.999])
def test_the_first_metric_goes_live_whatever_the_confidence(confidence):
    for hold_out in (HoldOut(), told(FEWEST - 1), told()):
        assert Guard(GuardConfig(confidence=confidence)).judge(turned(1.5), hold_out, TABLE) == ""


def test_a_worse_metric_is_held_back_and_a_better_one_is_not():
    guard = Guard(GuardConfig(), turned(0.6))
    assert "256 events held back" in guard.judge(turned(1.2), told(), TABLE)
    assert guard.judge(turned(0.3), told(), TABLE) == ""


def test_too_few_events_held_back_say_nothing():
    guard = Guard(GuardConfig(moved=1.0), turned(0.0))
    assert guard.judge(turned(1.5), told(FEWEST - 1), TABLE) == ""
    assert guard.judge(turned(1.5), told(FEWEST), TABLE) != ""


def test_what_is_perhaps_too_much_worse_goes_live_but_not_once_something_was_held_back():
    reference, little, hold_out = turned(0.2), turned(0.27), told(FEWEST)
    gain = hold_out.margins(little, TABLE) - hold_out.margins(reference, TABLE)
    assert gain.mean() < 0
    config = GuardConfig(tolerance=-0.99 * gain.mean())
    assert Guard(config, reference).judge(little, hold_out, TABLE) == ""
    held = Guard(config, reference, held="not as good")
    assert held.judge(little, hold_out, TABLE) != ""
    assert held.judge(reference, hold_out, TABLE) == ""


def test_many_small_steps_down_do_not_become_the_measure():
    guard, hold_out, live = Guard(GuardConfig(), turned(0.0)), told(), turned(0.0)
    verdicts = []
    for angle in np.linspace(0.0, 1.5, 300):
        verdicts.append(guard.judge(turned(angle), hold_out, TABLE))
        live = live if verdicts[-1] else turned(angle)
    assert quality(turned(0.0)) - quality(live) < 0.04
    first = verdicts.index(next(filter(None, verdicts)))
    assert all(verdicts[first:])


@settings(max_examples=30, deadline=None)
@given(angles=st.lists(st.floats(0.0, 1.5), min_size=1, max_size=15))
def test_whatever_comes_in_between_what_is_live_is_never_much_worse_than_the_best_reference(angles):
    guard, hold_out, live = Guard(GuardConfig(moved=1.0), turned(0.8)), told(), turned(0.8)
    for angle in angles:
        if not guard.judge(turned(angle), hold_out, TABLE):
            live = turned(angle)
        assert quality(live) > quality(turned(0.8)) - 0.1


def test_nor_where_a_worker_claims_the_model_anew_after_every_tenth_of_them():
    hold_out, live = told(), turned(0.0)
    guard, twin = Guard(GuardConfig(), live), Guard(GuardConfig(), live)
    for number, angle in enumerate(np.linspace(0.0, 1.5, 300)):
        if number % 10 == 0:
            guard = Guard(GuardConfig(), live, guard.held, guard.yardstick, guard.reference)
        held = guard.judge(turned(angle), hold_out, TABLE)
        assert bool(held) == bool(twin.judge(turned(angle), hold_out, TABLE))
        live = live if held else turned(angle)


def test_what_is_compared_with_is_renewed_by_what_is_better_at_once():
    guard, hold_out = Guard(GuardConfig(), turned(0.6)), told()
    hold_out.count += 1000
    assert guard.judge(turned(0.0), hold_out, TABLE) == ""
    assert guard.judge(turned(0.6), hold_out, TABLE) != ""


def test_what_is_compared_with_is_not_renewed_by_what_is_worse():
    hold_out, config = told(), GuardConfig(confidence=0.6)
    worse, worst = (turned_down_by(drop * config.tolerance) for drop in (0.8, 1.3))
    guard = Guard(config, turned(0.3))
    for count in (1000, 2000):
        hold_out.count = count
        assert guard.judge(worse, hold_out, TABLE) == ""
    assert quality(worst) > quality(worse) - config.tolerance
    assert guard.judge(worst, hold_out, TABLE) != ""


def test_a_metric_whose_distances_overflow_is_held_back():
    huge = ProjectionMetric(turned(0.3).weights, {name: np.full((1, size), 1e308) for name, size in DIMS.items()})
    guard = Guard(GuardConfig(), turned(0.3))
    with np.errstate(all="ignore"):
        assert "margins +nan" in guard.judge(huge, told(), TABLE)


# leaps
@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (turned(0.5, 11.0), "the norm of .* went from .* to .* at once"),
        (turned(0.5, 1 / 11.0), "the norm of .* went from .* to .* at once"),
        (turned(1.4), "of the weight moved between modalities at once"),
    ],
    ids=["larger", "smaller", "weights"],
)
def test_a_leap_is_held_back_where_nothing_says_that_it_is_better(candidate, reason):
    guard = Guard(GuardConfig(), turned(0.5))
    assert re.search(reason, guard.judge(candidate, HoldOut(), TABLE))
    assert guard.judge(turned(0.5), HoldOut(), TABLE) == ""


def test_a_collapse_of_many_directions_into_one_is_a_leap():
    def stretched(*sizes):
        return ProjectionMetric({"many": 1.0}, {"many": np.diag(sizes)})

    guard = Guard(GuardConfig(), stretched(*[1.0] * 12))
    assert guard.judge(stretched(3.0, *[0.01] * 11), HoldOut(), {}).startswith("the spread of ")
    assert guard.judge(stretched(*[1.0] * 4, *[0.01] * 8), HoldOut(), {}) == ""


def test_a_leap_goes_live_where_events_held_back_say_it_is_better():
    guard = Guard(GuardConfig(), turned(1.4))
    assert weight_moved(turned(1.4), turned(0.1)) > guard.config.moved
    assert guard.judge(turned(0.1), told(), TABLE) == ""


def test_a_leap_that_was_held_back_is_not_what_later_ones_are_compared_with():
    hold_out, config = told(), GuardConfig(confidence=0.6)
    slightly, worse = (turned_down_by(drop * config.tolerance) for drop in (0.4, 1.3))
    guard = Guard(config, turned(0.3))
    hold_out.count += 1000
    leap = ProjectionMetric(slightly.weights, {name: 128 * matrix for name, matrix in slightly.matrices.items()})
    assert "at once" in guard.judge(leap, hold_out, TABLE)
    assert guard.judge(turned(0.3), hold_out, TABLE) == ""
    assert quality(worse) > quality(leap) - config.tolerance
    assert guard.judge(worse, hold_out, TABLE) != ""


def turned_down_by(drop):
    """The metric whose quality is lower than that of the one turned by 0.3, by so much."""
    angles = np.linspace(0.3, 0.5, 80)
    return next(turned(angle) for angle in angles if quality(turned(angle)) <= quality(turned(0.3)) - drop)


def test_slow_growth_is_no_leap():
    guard = Guard(GuardConfig(), turned(0.5))
    for scale in (5.0, 25.0, 125.0):
        assert guard.judge(turned(0.5, scale), HoldOut(), TABLE) == ""


def test_sizes_are_the_norm_of_every_tensor_and_the_directions_of_every_matrix():
    plain = ProjectionMetric({"shape": 0.5, "noise": 0.5}, {"shape": 2 * np.eye(4, 9), "noise": np.ones((3, 5))})
    found = [round(size, 6) for _, size in sizes(plain)]
    assert found == [4.0, 4.0, round(math.sqrt(15), 6), 1.0]
    assert weight_moved(turned(0.0), turned(math.pi / 4)) == pytest.approx(0.5)


# a worker
def guarded(folder, **options):
    """A world whose guard looks at every fifth event."""
    world = World(folder)
    world.configuration = msgspec.structs.replace(world.configuration, guard=GuardConfig(**{"hold_out": 5, **options}))
    return world


def inverted(said):
    """The same clicks, each for the wrong item."""
    swap = [(b'"relevant"', b'"?"'), (b'"irrelevant"', b'"relevant"'), (b'"?"', b'"irrelevant"')]
    for event in said:
        for old, new in swap:
            event = event.replace(old, new)
        yield event


def told_of(world):
    """What became of snapshots, oldest first."""
    lines = [line for line in world.store.history("shop") if line["what"] in ("published", "held")]
    return [(line["what"], line["version"], line["reason"]) for line in lines]


def held_gauge(worker):
    """What Prometheus sees."""
    return worker.services.metrics.registry.get_sample_value("omdml_snapshot_held", {"model": "shop"})


@pytest.fixture
def burst(tmp_path):
    """A world and its worker after good clicks, then a burst of inverted ones."""
    world = guarded(tmp_path)
    worker = world.worker()
    world.send(*events(1000))
    run_until_idle(worker)
    assert (world.store.current("shop").version, held_gauge(worker)) == (800, 0.0)
    world.send(*inverted(events(200, seed=5)))
    run_until_idle(worker)
    return world, worker


def test_what_a_burst_of_inverted_clicks_makes_is_held_back_while_learning_goes_on(burst):
    world, worker = burst
    assert world.store.current("shop").version == 800
    assert world.store.claim("shop").checkpoint.version == 960
    what, version, reason = told_of(world)[-1]
    assert (what, version) == ("held", 960)
    assert "events held back" in reason
    assert held_gauge(worker) == 1.0


def test_it_goes_live_by_itself_once_it_is_better(burst, capsys):
    world, worker = burst
    for seed in range(50, 70):
        world.send(*events(60, seed=seed))
        run_until_idle(worker, turns=6)
    assert world.store.current("shop").version == world.store.claim("shop").checkpoint.version == 1920
    assert (told_of(world)[-1][0], held_gauge(worker)) == ("published", 0.0)
    assert "snapshots_live_again" in capsys.readouterr().out


def test_freshness_counts_from_the_oldest_event_that_was_kept_from_going_live(burst):
    world, worker = burst
    for seed in range(50, 70):
        world.send(*(event.replace(b'"at":1.0', b'"at":9.0') for event in events(60, seed=seed)))
        run_until_idle(worker, turns=6)
        if world.store.current("shop").version > 800:
            break
    snapshot = world.store.load("shop")[1]
    assert (snapshot.oldest_event_time, snapshot.event_time) == (1.0, 9.0)


def test_between_two_looks_what_is_near_the_last_one_judged_goes_live_and_what_is_not_waits(tmp_path, monkeypatch):
    monkeypatch.setattr("workers.guard.SHARE", 1e-9)  # after the first look there is no time for a second
    world = World(tmp_path)
    worker = world.worker()
    worker.config, worker._saved_at = WorkerConfig(checkpoint_interval_s=NEVER), 0.0
    live = []
    for count in (10, NEAR, 1):
        world.send(*events(count, seed=count))
        run_until_idle(worker)
        live.append(world.store.current("shop").version)
    assert live == [10, 10 + NEAR, 10 + NEAR]


def test_between_two_looks_a_leap_does_not_go_live():
    guard = Guard(GuardConfig(), turned(0.3))
    assert guard.follows(turned(0.31))
    assert not guard.follows(turned(1.5))


def test_with_the_guard_off_the_same_burst_goes_live(tmp_path):
    world = guarded(tmp_path, on=False)
    world.send(*events(1000), *inverted(events(200, seed=5)))
    run_until_idle(world.worker())
    assert world.store.current("shop").version == 1200


def test_what_is_held_back_is_recorded_at_every_save_that_has_news_and_not_at_every_publication(burst):
    world, worker = burst
    before = told_of(world)
    worker.config = WorkerConfig(checkpoint_interval_s=NEVER)
    for seed in range(5):
        world.send(*inverted(events(10, seed=seed)))
        run_until_idle(worker, turns=3)
    assert told_of(world) == before
    worker.config = WorkerConfig()
    run_until_idle(worker, turns=5)
    assert [line[:2] for line in told_of(world)[len(before) :]] == [("held", 1000)]


def test_after_a_crash_what_was_held_back_is_still_held_and_compared_with_what_is_live(burst):
    world, worker = burst
    live = world.store.current("shop")
    for seed in range(3):
        world.log.expel(worker.services.source)
        worker = world.worker()
        run_until_idle(worker, turns=5)
        assert world.store.current("shop") == live
        world.send(*inverted(events(5, seed=seed)))
        run_until_idle(worker, turns=5)
        assert world.store.current("shop") == live
        assert held_gauge(worker) == 1.0


def test_after_a_crash_it_still_takes_more_to_be_let_go_than_to_be_held(burst):
    world, worker = burst
    world.log.expel(worker.services.source)
    worker = world.worker()
    worker.config = WorkerConfig(publish_interval_s=NEVER, checkpoint_interval_s=NEVER)
    worker._published_at = worker._saved_at = 0.0
    world.send(*events(1))
    run_until_idle(worker, turns=3)
    (owned,) = worker.partitions.values()
    assert owned.models["shop"].guard.held == world.store.claim("shop").checkpoint.progress["held"] != ""


def test_a_model_that_is_claimed_anew_is_compared_with_what_it_was_compared_with_before(tmp_path):
    world = guarded(tmp_path)
    worker = world.worker()
    for seed, count in enumerate((1000, 50)):
        world.send(*events(count, seed=seed))
        run_until_idle(worker)
    (partition,) = worker.partitions.values()
    before = partition.models["shop"]
    assert (before.progress.yardstick.version, before.learner.version) == (800, 840)
    world.log.expel(worker.services.source)
    worker = world.worker()
    world.send(*events(1, seed=3))
    run_until_idle(worker)
    (partition,) = worker.partitions.values()
    after = partition.models["shop"]
    assert after.progress.yardstick == before.progress.yardstick
    for one, other in zip(*(model.guard.reference.to_tensors()[0].values() for model in (before, after)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_held_model_whose_guard_is_switched_off_goes_live(burst):
    world, worker = burst
    world.log.expel(worker.services.source)
    world.configuration = msgspec.structs.replace(world.configuration, guard=GuardConfig(on=False))
    world.send(*events(1))
    run_until_idle(world.worker())
    assert world.store.current("shop").version == 961


def test_where_the_live_snapshot_is_damaged_the_next_one_goes_live(tmp_path, capsys):
    world = guarded(tmp_path)
    worker = world.worker()
    world.send(*events(1000, model="user-1"), *inverted(events(200, seed=5, model="user-1")))
    run_until_idle(worker)
    world.log.expel(worker.services.source)
    pointer, journal = world.store.current("user-1"), world.store.journal("user-1")
    key = (pointer.version, pointer.digest)
    journal.write(key, journal.read(key)[:-7])
    world.send(*events(1, model="user-1"))
    run_until_idle(world.worker())
    assert "snapshot_damaged" in capsys.readouterr().out
    assert world.store.current("user-1").version == 961
