"""The guard: what it keeps from going live, what it lets through, and what operators see of it."""

from __future__ import annotations

import itertools
import math
import re
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.metrics import ProjectionMetric
from streams.memory import MemoryLog
from streams.stores.memory import MemoryStore
from tests.support.deep import examples
from tests.support.worlds import DIMS, World, events, items, not_held_out, run_until_idle, triplets, whole_log
from workers.configuration.config import GuardConfig, WorkerConfig
from workers.model.guard import (
    FEWEST,
    NEAR,
    NEWEST,
    Guard,
    grid,
    newest,
    next_decision,
    not_finite,
    sizes,
    votes,
    weight_moved,
    weights,
)
from workers.model.held_out_window import HeldEvent, Window, told
from workers.versions import moves

NEVER = 1e9  # seconds
TABLE, _ = items()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr("workers.learning.worker.STOP_S", 0.0)
    monkeypatch.setattr("workers.model.guard.SHARE", math.inf)  # there is always time for a look


# candidates
def turned(angle, scale=1.0):
    """A metric that asks the modality which tells labels, and the further it is turned the more the other one."""
    weights = {"shape": math.cos(angle) ** 2, "noise": math.sin(angle) ** 2}
    return ProjectionMetric(weights, {name: scale * np.eye(size) for name, size in DIMS.items()})


def window_of(count=256, seed=0, inverted=False):
    """So many events held out, which the labels answer, or the opposite of that."""
    rows = triplets(count, seed)[:, [0, 2, 1] if inverted else [0, 1, 2]]
    window = Window([], 10)
    for row in rows.tolist():
        window.add(HeldEvent([row]))
    return window


def decide(guard, candidate, window, held_out=256):
    """Why the guard decides that a candidate must not go live."""
    guard.decide(candidate, guard.yardstick.decided + 1, window, held_out, TABLE)
    assert guard.yardstick.withheld in ("", guard.withheld(candidate))
    return guard.yardstick.withheld


def quality(metric):
    """Mean margin on what was held out, each query counted once."""
    window = window_of()
    margins = told(metric, window.kept, TABLE)
    return votes(margins, window.asked(len(margins))).mean()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("count", [0, 256])
@pytest.mark.parametrize("on", [True, False])
def test_a_metric_that_is_not_finite_never_goes_live(value, count, on):
    guard = Guard(GuardConfig(on=on), turned(0.3))
    broken = turned(0.3).matrices["shape"].copy()
    broken[0, 0] = value
    candidate = ProjectionMetric({"shape": 1.0, "noise": 0.0}, {"shape": broken, "noise": np.eye(DIMS["noise"])})
    assert "not finite" in not_finite(candidate)
    assert guard.withheld(candidate) == not_finite(candidate)
    assert decide(guard, candidate, window_of(count)) == not_finite(candidate)
    assert decide(guard, turned(0.3), window_of(count)) == ""


def test_a_worse_metric_is_withheld_and_a_better_one_is_not():
    guard = Guard(GuardConfig(), turned(0.6))
    assert "not as good on" in decide(guard, turned(1.2), window_of())
    assert decide(guard, turned(0.3), window_of()) == ""


def test_too_few_events_held_out_say_nothing():
    guard = Guard(GuardConfig(moved=1.0), turned(0.0))
    assert decide(guard, turned(1.5), window_of(FEWEST - 1)) == ""
    assert decide(guard, turned(1.5), window_of(FEWEST)) != ""


def test_what_is_perhaps_too_much_worse_goes_live_but_not_once_something_was_withheld():
    reference, little, window = turned(0.2), turned(0.27), window_of(FEWEST)
    gain = told(little, window.kept, TABLE) - told(reference, window.kept, TABLE)
    drop = votes(gain, window.asked(len(gain))).mean()
    assert drop < 0
    config = GuardConfig(tolerance=-0.99 * drop)
    guard = Guard(config, reference)
    assert decide(guard, little, window) == ""
    guard.yardstick.withheld = "not as good"
    assert decide(guard, little, window) != ""
    assert decide(guard, reference, window) == ""


def test_after_something_was_withheld_what_is_better_than_that_but_still_worse_than_allowed_is_withheld_too():
    guard, window = Guard(GuardConfig(tolerance=0.05, moved=1.0), turned(0.0)), window_of()
    candidates = {angle: quality(turned(0.0)) - quality(turned(angle)) for angle in np.linspace(0.0, 1.2, 60)}
    slightly = max(angle for angle, lost in candidates.items() if lost < 0.04)
    worse = min(angle for angle, lost in candidates.items() if lost > 0.06)
    assert decide(guard, turned(1.2), window) != ""
    assert decide(guard, turned(worse), window) != ""
    assert decide(guard, turned(slightly), window) == ""


def test_what_is_live_is_to_be_taken_back_once_if_events_say_that_it_became_worse():
    guard, window = Guard(GuardConfig(moved=1.0), turned(0.0)), window_of()
    decide(guard, turned(0.05), window)
    assert not guard.take_back
    decide(guard, turned(1.2), window)
    assert guard.take_back
    guard.take_back = False
    decide(guard, turned(1.2), window)
    assert not guard.take_back


def test_it_stays_live_if_a_later_decision_allows_what_was_learned_since():
    guard, window = Guard(GuardConfig(moved=1.0), turned(0.0)), window_of()
    decide(guard, turned(1.2), window)
    decide(guard, turned(0.05), window)
    assert not guard.take_back


def test_a_leap_or_values_that_are_not_finite_take_nothing_back():
    guard = Guard(GuardConfig(), turned(0.5))
    assert "at once" in decide(guard, turned(0.5, 11.0), window_of(0))
    assert "not finite" in decide(guard, turned(0.5, np.nan), window_of())
    assert not guard.take_back


def test_a_query_that_is_asked_again_and_again_has_one_vote():
    assert votes(np.array([1.0, 0.0, 0.5, -1.0]), np.array([3, 3, 3, 7])).tolist() == [0.5, -1.0]
    assert newest(np.array([1, 2, 1, 3, 3]), 2) == 2
    assert newest(np.array([1, 2, 1, 3, 3]), 4) == 0
    window = window_of(64)
    loud = next(event for event in window.kept)
    for _ in range(12):
        window.add(HeldEvent([[loud.rows[0][0], loud.rows[0][2], loud.rows[0][1]]]))
    asked = window.asked(len(window.kept))
    assert np.bincount(asked).max() >= 12
    assert len(votes(np.ones(len(asked)), asked)) == len({event.rows[0][0] for event in window.kept})


def test_many_small_steps_down_do_not_become_the_measure():
    guard, window, live = Guard(GuardConfig(), turned(0.0)), window_of(), turned(0.0)
    verdicts = []
    for number, angle in enumerate(np.linspace(0.0, 1.5, 300)):
        verdicts.append(decide(guard, turned(angle), window, held_out=64 * number))
        live = live if verdicts[-1] else turned(angle)
    assert quality(turned(0.0)) - quality(live) < 0.05
    first = verdicts.index(next(filter(None, verdicts)))
    assert all(verdicts[first:])


@settings(max_examples=examples(20), deadline=None)
@given(angles=st.lists(st.floats(0.0, 1.5), min_size=1, max_size=15))
def test_what_is_live_is_never_much_worse_than_the_best_reference(angles):
    guard, window, live = Guard(GuardConfig(moved=1.0), turned(0.8)), window_of(), turned(0.8)
    for number, angle in enumerate(angles):
        if not decide(guard, turned(angle), window, held_out=64 * number):
            live = turned(angle)
        assert quality(live) > quality(turned(0.8)) - 0.1


def test_what_is_compared_with_is_renewed_at_once_by_what_is_surely_better():
    guard, window = Guard(GuardConfig(), turned(0.6)), window_of()
    guard.yardstick.renewed = 256
    assert decide(guard, turned(0.0), window) == ""
    assert guard.reference.weights == turned(0.0).weights
    assert [event.expected for event in window.kept] == told(turned(0.0), window.kept, TABLE).tolist()
    assert decide(guard, turned(0.6), window) != ""


def test_what_is_compared_with_is_renewed_by_what_is_as_good_only_after_a_while():
    guard, window, same = Guard(GuardConfig(), turned(0.3)), window_of(), turned(0.31)
    guard.yardstick.renewed = 256
    assert decide(guard, same, window, held_out=256 + 63) == ""
    assert guard.reference is not same
    assert decide(guard, same, window, held_out=256 + 64) == ""
    assert guard.reference is same


def test_what_is_compared_with_is_not_renewed_by_what_is_worse():
    config = GuardConfig(confidence=0.6)
    worse, worst = (turned_down_by(drop * config.tolerance) for drop in (0.8, 1.3))
    guard = Guard(config, turned(0.3))
    for held_out in (1000, 2000):
        assert decide(guard, worse, window_of(), held_out) == ""
    assert quality(worst) > quality(worse) - config.tolerance
    assert decide(guard, worst, window_of()) != ""


def test_a_metric_whose_distances_overflow_is_withheld():
    huge = ProjectionMetric(turned(0.3).weights, {name: np.full((1, size), 1e308) for name, size in DIMS.items()})
    guard = Guard(GuardConfig(), turned(0.3))
    with np.errstate(all="ignore"):
        assert "margins +nan" in decide(guard, huge, window_of())


def test_where_the_newest_events_surely_agree_minds_have_changed_and_older_ones_are_forgotten():
    guard, window = Guard(GuardConfig(moved=1.0), turned(0.0)), window_of()
    for event in window_of(44, seed=1, inverted=True).kept:
        window.add(event)
    assert decide(guard, turned(1.5), window) == ""
    assert guard.reference.weights == turned(1.5).weights
    assert NEWEST <= len(window.kept) <= 60
    assert decide(guard, turned(0.0), window) != ""


@pytest.mark.parametrize("count", [10, 20, 30])
def test_a_burst_does_not_pass_for_a_change_of_mind(count):
    guard, window = Guard(GuardConfig(moved=1.0), turned(0.0)), window_of()
    for event in window_of(count, seed=1, inverted=True).kept:
        window.add(event)
    assert decide(guard, turned(1.5), window) != ""
    assert len(window.kept) > 200


# when
def test_decisions_are_made_at_powers_of_two_and_then_at_every_step():
    found, version = [], 0
    while version < 2_000:
        found.append(version := next_decision(version, 512))
    assert found == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048]


@given(version=st.integers(0, 10_000), step=st.sampled_from([512, 1024, 2048]))
def test_the_next_decision_is_the_first_after_a_version(version, step):
    due = {1 << power for power in range(12) if 1 << power <= step} | set(range(step, 20_000, step))
    assert next_decision(version, step) == min(at for at in due if at > version)


@pytest.mark.parametrize(("size", "expected"), [(10, 512), (1_700, 1024), (3_209, 2048), (50_000, 2048)])
def test_a_large_model_is_decided_on_less_often(size, expected):
    assert grid(ProjectionMetric({"all": 1.0}, {"all": np.ones((50, size), np.float32)})) == expected


def test_a_look_between_two_decisions_withholds_and_leaves_nothing_behind():
    guard, window = Guard(GuardConfig(moved=1.0), turned(0.0)), window_of()
    before = msgspec.json.encode((guard.yardstick, window.kept))
    assert "not as good" in guard.look(turned(1.5), 70, window, TABLE)
    assert not guard.is_near(71)
    assert msgspec.json.encode((guard.yardstick, window.kept)) == before
    assert guard.withheld(turned(0.01)) == ""
    assert guard.look(turned(0.01), 72, window, TABLE) == ""
    assert guard.is_near(72 + NEAR)
    assert not guard.is_near(73 + NEAR)


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
def test_a_leap_is_withheld_where_nothing_says_that_it_is_better(candidate, reason):
    guard = Guard(GuardConfig(), turned(0.5))
    assert re.search(reason, decide(guard, candidate, window_of(0)))
    assert decide(guard, turned(0.5), window_of(0)) == ""


def test_a_collapse_of_many_directions_into_one_is_a_leap():
    def stretched(*sizes):
        return ProjectionMetric({"many": 1.0}, {"many": np.diag(sizes)})

    guard = Guard(GuardConfig(), stretched(*[1.0] * 12))
    assert decide(guard, stretched(3.0, *[0.01] * 11), window_of(0)).startswith("the spread of ")
    assert decide(guard, stretched(*[1.0] * 4, *[0.01] * 8), window_of(0)) == ""


def test_a_leap_goes_live_where_events_held_out_say_it_is_better():
    guard = Guard(GuardConfig(), turned(1.4))
    assert weight_moved(weights(turned(1.4)), weights(turned(0.1))) > guard.config.moved
    assert decide(guard, turned(0.1), window_of()) == ""


def test_a_leap_that_was_withheld_is_not_what_later_ones_are_compared_with():
    config = GuardConfig(confidence=0.6)
    slightly, worse = (turned_down_by(drop * config.tolerance) for drop in (0.4, 1.3))
    guard = Guard(config, turned(0.3))
    leap = ProjectionMetric(slightly.weights, {name: 128 * matrix for name, matrix in slightly.matrices.items()})
    assert "at once" in decide(guard, leap, window_of(), held_out=1000)
    assert decide(guard, turned(0.3), window_of()) == ""
    assert quality(worse) > quality(leap) - config.tolerance
    assert decide(guard, worse, window_of()) != ""


def turned_down_by(drop):
    """The metric whose quality is lower than that of the one turned by 0.3, by so much."""
    angles = np.linspace(0.3, 0.5, 80)
    return next(turned(angle) for angle in angles if quality(turned(angle)) <= quality(turned(0.3)) - drop)


def test_slow_growth_is_no_leap():
    guard = Guard(GuardConfig(), turned(0.5))
    for scale in (5.0, 25.0, 125.0):
        assert decide(guard, turned(0.5, scale), window_of(0)) == ""


def test_sizes_are_the_norm_of_every_tensor_and_the_directions_of_every_matrix():
    plain = ProjectionMetric({"shape": 0.5, "noise": 0.5}, {"shape": 2 * np.eye(4, 9), "noise": np.ones((3, 5))})
    found = [round(size, 6) for _, size in sizes(plain)]
    assert found == [4.0, 4.0, round(math.sqrt(15), 6), 1.0]
    assert weight_moved(weights(turned(0.0)), weights(turned(math.pi / 4))) == pytest.approx(0.5)


# a worker
def guarded(folder, **options):
    """A world whose guard looks at every fifth event."""
    world = World(folder)
    world.store = MemoryStore(secret=b"7" * 32)
    world.configuration = msgspec.structs.replace(world.configuration, guard=GuardConfig(**{"hold_out": 5, **options}))
    return world


def learned(world):
    """How many comparisons of the log so far are learned."""
    return len(not_held_out(whole_log(world), world.store.secret(), every=5))


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


def taken_back_count(worker):
    """What Prometheus sees; None before it counted any."""
    labels = {"outcome": "taken_back"}
    return worker.services.metrics.registry.get_sample_value("omdml_snapshots_total", labels)


def held_gauge(worker):
    """What Prometheus sees."""
    return worker.services.metrics.registry.get_sample_value("omdml_snapshot_held", {"model": "shop"})


@pytest.fixture
def burst(tmp_path):
    """A world and its worker after good clicks, then a burst of inverted ones.

    It is too short for its held-out queries to be believed: forty that agree count as a change of taste.
    """
    world = guarded(tmp_path)
    worker = world.worker()
    world.send(*events(1000))
    run_until_idle(worker)
    assert (world.store.current("shop").version, held_gauge(worker)) == (learned(world), 0.0)
    for seed in (5, 6, 7):
        world.send(*inverted(events(40, seed=seed)))
        run_until_idle(worker)
    return world, worker


def test_what_a_burst_of_inverted_clicks_makes_is_withheld_while_learning_goes_on(burst):
    world, worker = burst
    # A few inverted clicks do next to no harm: what follows them does not go live.
    before = len(not_held_out(whole_log(world)[:1080], world.store.secret(), every=5))
    assert world.store.current("shop").version <= before < learned(world)
    assert world.store.claim("shop").checkpoint.version == learned(world)
    what, version, reason = told_of(world)[-1]
    assert (what, version) == ("held", learned(world))
    assert "queries held out" in reason
    assert held_gauge(worker) == 1.0


@pytest.fixture
def unseen(tmp_path, monkeypatch):
    """A world and its worker before a burst that no look finds, and what they go back to after it."""
    # No look finds anything: the whole burst up to the decision goes live.
    monkeypatch.setattr("workers.model.guard.Guard.look", lambda *_: "")
    monkeypatch.setattr("workers.model.guard.GRID", 64)
    world = guarded(tmp_path)
    worker = world.worker()
    world.send(*events(1000))
    run_until_idle(worker)
    (partition,) = worker.partitions.values()
    return world, worker, partition.models.loaded["shop"].guard.reference


def break_in(world, worker):
    """A burst, so short that it does not pass for a change of mind."""
    for seed in range(5, 11):
        world.send(*inverted(events(20, seed=seed)))
        run_until_idle(worker)


def test_what_was_live_before_a_burst_is_live_again_if_the_burst_made_it_worse(unseen):
    world, worker, before = unseen
    break_in(world, worker)
    (note,) = [line for line in world.store.history("shop") if line["what"] == "taken back"]
    assert "queries held out" in note["reason"]
    live = world.store.load("shop")[1]
    assert live.metric.weights == before.weights
    assert (live.event_time, live.oldest_event_time) == (None, None)
    assert held_gauge(worker) == 1.0
    assert taken_back_count(worker) == 1.0
    # What went live of the burst is nothing to go back to.
    earlier = moves.rollback(world.store, "shop", kind=None).version
    assert earlier <= int(re.findall(r"version (\d+) had", note["reason"])[0])


def test_what_is_pinned_is_not_counted_as_taken_back_and_leads_to_the_reference(unseen):
    world, worker, before = unseen
    pinned = world.store.move("shop", world.store.current("shop").version, pin=True)
    break_in(world, worker)
    assert world.store.current("shop") == pinned
    assert taken_back_count(worker) is None
    world.store.move("shop", None, pin=False)
    assert world.store.load("shop")[1].metric.weights == before.weights


def test_it_goes_live_by_itself_once_it_is_better(burst):
    world, worker = burst
    for seed in range(50, 90):
        world.send(*events(60, seed=seed))
        run_until_idle(worker, turns=6)
    assert world.store.current("shop").version == world.store.claim("shop").checkpoint.version == learned(world)
    assert (told_of(world)[-1][0], held_gauge(worker)) == ("published", 0.0)


def test_freshness_counts_from_the_oldest_event_that_was_kept_from_going_live(burst):
    world, worker = burst
    before = world.store.current("shop").version
    for seed in range(50, 90):
        world.send(*(event.replace(b'"at":1.0', b'"at":9.0') for event in events(60, seed=seed)))
        run_until_idle(worker, turns=6)
        if world.store.current("shop").version > before:
            break
    snapshot = world.store.load("shop")[1]
    assert (snapshot.oldest_event_time, snapshot.event_time) == (1.0, 9.0)


def test_between_two_looks_what_is_near_goes_live_and_what_is_not_waits(tmp_path, monkeypatch):
    monkeypatch.setattr("workers.model.guard.SHARE", 1e-9)  # after the first look there is no time for a second
    world = guarded(tmp_path, hold_out=10**6)
    worker = world.worker()
    worker.config, worker._saved_at = WorkerConfig(checkpoint_interval_s=NEVER), 0.0
    # 512, 1024: a decision is made whatever the time.
    published = {512: 512, 512 + NEAR: 512 + NEAR, 512 + NEAR + 1: 512 + NEAR + 1, 800: 512 + NEAR + 1, 1030: 1030}
    sent = 0
    for version, live in published.items():
        world.send(*events(version - sent, seed=version))
        sent = version
        run_until_idle(worker)
        assert world.store.current("shop").version == live


def test_with_the_guard_off_the_same_burst_goes_live(tmp_path):
    world = guarded(tmp_path, on=False)
    world.send(*events(1000), *inverted(events(200, seed=5)))
    run_until_idle(world.worker())
    assert world.store.current("shop").version == 1200


def test_what_is_withheld_is_recorded_at_every_save_that_has_news_and_at_no_other_time(burst):
    world, worker = burst
    before = told_of(world)
    worker.config = WorkerConfig(checkpoint_interval_s=NEVER)
    for seed in range(5):
        world.send(*inverted(events(10, seed=seed)))
        run_until_idle(worker, turns=3)
    assert told_of(world) == before
    worker.config = WorkerConfig()
    run_until_idle(worker, turns=5)
    assert [line[:2] for line in told_of(world)[len(before) :]] == [("held", learned(world))]


def test_after_a_crash_what_was_withheld_still_is(burst):
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


def test_a_model_that_is_claimed_again_goes_on_with_guard_and_window_as_they_were(tmp_path):
    world = guarded(tmp_path)
    worker = world.worker()
    world.send(*events(1500))
    run_until_idle(worker)
    (partition,) = worker.partitions.values()
    before = partition.models.loaded["shop"]
    world.log.expel(worker.services.source)
    worker = world.worker()
    world.send(*events(1, seed=3))
    run_until_idle(worker)
    (partition,) = worker.partitions.values()
    after = partition.models.loaded["shop"]
    assert after is not before
    assert after.progress.yardstick == before.progress.yardstick
    assert after.progress.yardstick.version > 0
    assert after.guard.reference_bytes == before.guard.reference_bytes
    assert after._window.limits == before._window.limits


def run(folder, said, cuts, seconds, killed=()):
    """Which versions could have gone live, and the last checkpoint, of a worker with these batches and this clock."""
    world = guarded(folder, tolerance=0.0, confidence=0.6)  # so that some versions are withheld
    world.log = MemoryLog(1, topic_id="same")
    world.now = itertools.count(step=seconds).__next__
    allowed, worker = {}, world.worker()
    for number, (first, last) in enumerate(pairwise([0, *cuts, len(said)])):
        world.send(*said[first:last])
        for _ in range(5):
            worker.step()
            for owned in worker.partitions.values():
                for model in owned.models.loaded.values():
                    allowed[model.learner.version] = model.guard.withheld(model.learner.metric)
        if number in killed:
            world.log.expel(worker.services.source)
            worker = world.worker()
    worker.stop()
    worker.run()
    return allowed, world.store.claim("shop").checkpoint


@pytest.mark.parametrize(
    ("cuts", "seconds", "killed"),
    [([325], 0.3, {0}), ([10, 340, 341, 600], 5.0, set())],
    ids=["killed", "other batches"],
)
def test_what_is_allowed_is_a_function_of_the_log(tmp_path_factory, cuts, seconds, killed):
    said = [*events(460), *inverted(events(200, seed=5)), *events(40, seed=9)]
    runs = []
    for batches, pace, deaths in ((range(100, 700, 100), 1.0, ()), (cuts, seconds, killed)):
        runs.append(run(tmp_path_factory.mktemp("run"), said, batches, pace, deaths))
    (often, kept), (seldom, kept_too) = runs
    assert kept.next == 700
    assert kept.to_bytes() == kept_too.to_bytes()
    assert kept.progress["yardstick"]["decided"] == 512
    shared = often.keys() & seldom.keys()
    assert {version: often[version] for version in shared} == {version: seldom[version] for version in shared}


def test_a_withheld_model_whose_guard_is_switched_off_goes_live(burst):
    world, worker = burst
    world.log.expel(worker.services.source)
    world.configuration = msgspec.structs.replace(world.configuration, guard=GuardConfig(on=False))
    before = learned(world)
    world.send(*events(1))
    run_until_idle(world.worker())
    assert world.store.current("shop").version == before + 1


def test_where_the_live_snapshot_is_damaged_the_next_one_goes_live(tmp_path, capsys):
    world = guarded(tmp_path)
    worker = world.worker()
    world.send(*events(300))
    run_until_idle(worker)
    world.log.expel(worker.services.source)
    pointer, journal = world.store.current("shop"), world.store.journal("shop")
    key = (pointer.version, pointer.digest)
    journal.write(key, journal.read(key)[:-7])
    world.send(*events(20, seed=1))
    run_until_idle(world.worker())
    assert world.store.load("shop")[1].version == learned(world)


def test_another_secret_is_told_in_the_history_and_learning_goes_on(tmp_path):
    world = guarded(tmp_path)
    worker = world.worker()
    world.send(*events(100))
    run_until_idle(worker)
    world.log.expel(worker.services.source)
    world.store._secret = b"8" * 32
    world.send(*events(1, seed=1))
    run_until_idle(world.worker())
    reasons = [line["reason"] for line in world.store.history("shop") if line["what"] == "adopted"]
    assert len(reasons) == 1
    assert "the store's secret is another one" in reasons[0]
    assert world.store.claim("shop").checkpoint.next == 101
