"""A worker under a guard: what goes live after good and bad clicks, a crash or a claim, and what operators see."""

from __future__ import annotations

import itertools
import math
import re
from itertools import pairwise

import msgspec
import pytest

from omdml.streams.memory_log import MemoryLog
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.configuration.config import GuardConfig, WorkerConfig
from omdml.workers.model.judging.guard import NEAR
from omdml.workers.model.judging.held_out_window import margins_on
from omdml.workers.versions import moves
from omdml.workers.versions.judgement import judgement
from tests.support.worlds import NEVER, World, events, not_held_out, run_until_idle, whole_log


@pytest.fixture(autouse=True)
def _always_time_for_a_look(monkeypatch):
    monkeypatch.setattr("omdml.workers.model.judging.guard.SHARE", math.inf)


def guarded(folder, **options):
    """A world whose guard holds out one event of five."""
    world = World(folder)
    world.store = MemoryStore(secret=b"7" * 32)
    world.configuration = msgspec.structs.replace(world.configuration, guard=GuardConfig(**{"hold_out": 5, **options}))
    return world


def learned(world):
    """How many comparisons of the log so far are learned."""
    return len(not_held_out(whole_log(world), world.store.secret(), every=5))


def inverted(values):
    """The same clicks, each for the wrong item."""
    swap = [(b'"relevant"', b'"?"'), (b'"irrelevant"', b'"relevant"'), (b'"?"', b'"irrelevant"')]
    for event in values:
        for old, new in swap:
            event = event.replace(old, new)
        yield event


def publications(world):
    """Whether each snapshot was published or held, its version, and the reason; the oldest first."""
    lines = [line for line in world.store.history("shop") if line["what"] in ("published", "held")]
    return [(line["what"], line["version"], line["reason"]) for line in lines]


def taken_back_count(worker):
    """How many versions were taken back, by the metric."""
    labels = {"outcome": "taken_back"}
    return worker.services.metrics.registry.get_sample_value("omdml_worker_publications_total", labels)


def held_gauge(worker):
    """How many models are held, by the metric."""
    return worker.services.metrics.registry.get_sample_value("omdml_worker_models_held", {"model": "shop"})


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


def test_inverted_clicks_are_withheld_while_learning_goes_on(burst):
    world, worker = burst
    # The first inverted clicks do next to no harm, and may go live. What follows them does not.
    before = len(not_held_out(whole_log(world)[:1080], world.store.secret(), every=5))
    assert world.store.current("shop").version <= before < learned(world)
    assert world.store.claim("shop").checkpoint.version == learned(world)
    what, version, reason = publications(world)[-1]
    assert (what, version) == ("held", learned(world))
    assert "held-out queries as version" in reason
    decision = judgement(world.store, "shop", lambda: None)
    assert (decision.decision, decision.reason) == ("withheld", reason)
    assert f"margin {decision.margin:+.3f}, give or take {decision.doubt:.3f}" in reason
    assert held_gauge(worker) == 1.0


@pytest.fixture
def unseen(tmp_path, monkeypatch):
    """A world, its worker, and the guard's reference, before a burst that goes live until the next decision."""
    # No look between two decisions finds anything.
    monkeypatch.setattr("omdml.workers.model.judging.guard.Guard.check_between", lambda *_: "")
    monkeypatch.setattr("omdml.workers.model.judging.guard.GRID", 64)
    world = guarded(tmp_path)
    worker = world.worker()
    world.send(*events(1000))
    run_until_idle(worker)
    (partition,) = worker.partitions.values()
    return world, worker, partition.models.loaded["shop"].judge.guard.reference


def break_in(world, worker):
    """A burst, so short that it does not pass for a change of mind."""
    for seed in range(5, 11):
        world.send(*inverted(events(20, seed=seed)))
        run_until_idle(worker)


def test_what_was_live_before_a_burst_is_live_again_if_the_burst_made_it_worse(unseen):
    world, worker, before = unseen
    break_in(world, worker)
    (note,) = [line for line in world.store.history("shop") if line["what"] == "taken back"]
    assert "held-out queries as version" in note["reason"]
    live = world.store.load("shop")[1]
    assert live.metric.weights == before.weights
    assert (live.event_time, live.oldest_event_time) == (None, None)
    assert held_gauge(worker) == 1.0
    assert taken_back_count(worker) == 1.0
    # A rollback does not lead to the versions of the burst that went live.
    earlier = moves.rollback(world.store, "shop", kind=None).version
    assert earlier <= int(re.findall(r"version (\d+) had", note["reason"])[0])


def test_what_is_pinned_is_not_counted_as_taken_back_and_leads_to_the_reference(unseen):
    world, worker, before = unseen
    pinned = world.store.move("shop", world.store.current("shop").version, pin=True)
    break_in(world, worker)
    assert world.store.current("shop") == pinned
    assert taken_back_count(worker) == 0.0
    world.store.move("shop", None, pin=False)
    assert world.store.load("shop")[1].metric.weights == before.weights


def test_a_version_after_one_taken_back_goes_live_once_it_is_better(burst):
    world, worker = burst
    for seed in range(50, 90):
        world.send(*events(60, seed=seed))
        run_until_idle(worker, turns=6)
    assert world.store.current("shop").version == world.store.claim("shop").checkpoint.version == learned(world)
    assert (publications(world)[-1][0], held_gauge(worker)) == ("published", 0.0)


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
    # After the first look there is no time for a second.
    monkeypatch.setattr("omdml.workers.model.judging.guard.SHARE", 1e-9)
    world = guarded(tmp_path, hold_out=10**6)
    worker = world.worker()
    worker.schedule.config, worker.schedule.saved_at = WorkerConfig(checkpoint_interval_s=NEVER), 0.0
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


def test_what_is_withheld_is_recorded_at_every_save_that_has_news(burst):
    world, worker = burst
    before = publications(world)
    worker.schedule.config = WorkerConfig(checkpoint_interval_s=NEVER)
    for seed in range(5):
        world.send(*inverted(events(10, seed=seed)))
        run_until_idle(worker, turns=3)
    assert publications(world) == before
    worker.schedule.config = WorkerConfig()
    run_until_idle(worker, turns=5)
    assert [line[:2] for line in publications(world)[len(before) :]] == [("held", learned(world))]


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


def test_a_model_claimed_again_keeps_its_guard_and_window(tmp_path):
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
    assert after.judge.guard.yardstick == before.judge.guard.yardstick
    assert after.judge.guard.yardstick.version > 0
    assert after.judge.guard.reference_bytes == before.judge.guard.reference_bytes
    assert after.judge.window.limits == before.judge.window.limits


def run(folder, values, cuts, seconds, killed=()):
    """Run a worker with these batches and this clock.

    Returns why the guard withheld each version ("" if it could go live), and the last checkpoint.
    """
    # With these settings the guard withholds some versions.
    world = guarded(folder, tolerance=0.0, confidence=0.6)
    world.log = MemoryLog(1, topic_id="same")
    world.now = itertools.count(step=seconds).__next__
    verdicts, worker = {}, world.worker()
    for number, (first, last) in enumerate(pairwise([0, *cuts, len(values)])):
        world.send(*values[first:last])
        for _ in range(5):
            worker.step()
            for owned in worker.partitions.values():
                for model in owned.models.loaded.values():
                    verdicts[model.learner.version] = model.judge.guard.why_withheld(model.learner.metric)
        if number in killed:
            world.log.expel(worker.services.source)
            worker = world.worker()
    worker.stop()
    worker.run()
    return verdicts, world.store.claim("shop").checkpoint


@pytest.mark.parametrize(
    ("cuts", "seconds", "killed"),
    [([925], 0.3, {0}), ([10, 940, 941, 1200], 5.0, set())],
    ids=["killed", "other batches"],
)
def test_what_is_allowed_is_a_function_of_the_log(tmp_path_factory, cuts, seconds, killed):
    # The last decision is about a burst of inverted clicks.
    sent = [*events(1200), *inverted(events(100, seed=5))]
    runs = []
    for batches, pace, deaths in ((range(100, 1300, 100), 1.0, ()), (cuts, seconds, killed)):
        runs.append(run(tmp_path_factory.mktemp("run"), sent, batches, pace, deaths))
    (verdicts, checkpoint), (other_verdicts, other_checkpoint) = runs
    assert checkpoint.next == 1300
    assert checkpoint.to_bytes() == other_checkpoint.to_bytes()
    assert checkpoint.progress["yardstick"]["decided"] == 1024
    # Of the versions that both workers had in memory at the end of a turn, the same ones are withheld.
    shared = sorted(verdicts.keys() & other_verdicts.keys())
    assert [verdicts[version] for version in shared] == [other_verdicts[version] for version in shared]
    assert "not as good on" in verdicts[shared[-1]]


def test_a_withheld_model_whose_guard_is_switched_off_goes_live(burst):
    world, worker = burst
    world.log.expel(worker.services.source)
    world.configuration = msgspec.structs.replace(world.configuration, guard=GuardConfig(on=False))
    before = learned(world)
    world.send(*events(1))
    run_until_idle(world.worker())
    assert world.store.current("shop").version == before + 1


def test_if_the_live_snapshot_is_damaged_the_next_one_goes_live(tmp_path):
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


def test_another_secret_is_reported_in_the_history_and_learning_goes_on(tmp_path):
    world = guarded(tmp_path)
    worker = world.worker()
    world.send(*events(100))
    run_until_idle(worker)
    world.log.expel(worker.services.source)
    world.store.database.groups["store"]["secret"] = b"8" * 64
    world.send(*events(1, seed=1))
    run_until_idle(world.worker())
    reasons = [line["reason"] for line in world.store.history("shop") if line["what"] == "adopted"]
    assert len(reasons) == 1
    assert "the store's secret is another one" in reasons[0]
    assert world.store.claim("shop").checkpoint.next == 101


def test_a_snapshot_tells_how_many_held_out_events_it_and_the_start_order_well(tmp_path):
    world = guarded(tmp_path)
    worker = world.worker()
    world.send(*events(1000))
    run_until_idle(worker)
    _, snapshot = world.store.load("shop")
    figures = snapshot.progress
    (partition,) = worker.partitions.values()
    model = partition.models.loaded["shop"]
    at_start = margins_on(model.judge.first_metric(), model.judge.window.events, world.catalogue.features)
    assert 0.5 < figures["held_out_right"] <= 1
    assert figures["held_out_right"] > figures["held_out_right_at_start"]
    compared = model.judge.guard.compared
    assert compared.margin > compared.doubt > 0
    assert {name: figures[f"guard_{name}"] for name in compared._fields} == compared._asdict()
    learner = model.learner
    assert (figures["hedge_loss"], figures["hedge_loss_bound"]) == (learner.hedge_loss, learner.hedge_loss_bound)
    assert 0 < figures["hedge_loss"] < figures["hedge_loss_bound"]
    # It is measured at decisions, after which a few more events were held out.
    assert figures["held_out_right_at_start"] == pytest.approx((at_start > 0).mean(), abs=0.1)
