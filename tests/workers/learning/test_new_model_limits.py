"""New models under a pattern: how many may begin, how fast, and what goes on meanwhile."""

from __future__ import annotations

import msgspec
import pytest
import structlog

from omdml.errors import ConfigurationError, StoreError
from omdml.workers.configuration.config import Configuration
from omdml.workers.configuration.loading import load
from omdml.workers.learning.partition.portions import PORTION
from omdml.workers.model import new_model_limits
from omdml.workers.model.new_model_limits import Newcomers
from omdml.workers.operate import models as upkeep
from tests.support.learning.worker_metrics import read
from tests.support.worlds import World, events, letters, paced, run_until_idle

NAMES = [f"user-{number}" for number in range(6)]


def limited(folder, most):
    """A world whose pattern covers so many models at most."""
    world = World(folder)
    models = world.configuration.models
    models = {**models, "user-*": msgspec.structs.replace(models["user-*"], max_models=most)}
    world.configuration = msgspec.structs.replace(world.configuration, models=models)
    return world


def of_each(names, count, seed=0):
    """Events of these models in turn, so many of each."""
    return [event for row in zip(*(events(count, seed, name) for name in names), strict=True) for event in row]


def listed(world):
    """The models of the pattern that the store lists."""
    return [name for name in world.store.models() if name.startswith("user-")]


def states(world):
    """What each model has learned, and how far it was taken."""
    results = {name: world.store.peek(name) for name in world.store.models()}
    return {name: (result.state, result.next) for name, result in results.items() if result}


def run_and_leave(worker):
    """Take all there is, and leave the group."""
    run_until_idle(worker)
    worker.stop()
    worker.run()


def test_names_beyond_the_limit_become_letters_and_others_go_on(tmp_path):
    world = limited(tmp_path, 3)
    world.send(*of_each(["shop", *NAMES], 2))
    run_until_idle(worker := world.worker())
    assert {letter.model for letter in letters(world)} == set(NAMES[3:])
    assert {letter.reason for letter in letters(world)} == {"too_many_models"}
    assert len(letters(world)) == 6
    assert "lists 3 models of 'user-*' already. Raise max_models in [models.'user-*']" in letters(world)[0].error
    assert {name: world.store.peek(name).version for name in world.store.models()} == dict.fromkeys(
        ["shop", *NAMES[:3]], 2
    )
    assert read(worker, "events_total", model="user-*", kind="triplet", outcome="refused") == 6
    assert world.store.marks(world.log.partitions)[world.log.partitions[0]] == 14


def test_models_that_the_store_lists_go_on_whatever_the_limit_is(tmp_path):
    world = limited(tmp_path, 6)
    world.send(*of_each(NAMES, 1))
    run_until_idle(worker := world.worker())
    world.log.expel(worker.services.source)
    tighter = limited(tmp_path / "tighter", 1)
    tighter.log, tighter.store = world.log, world.store
    tighter.send(*of_each([*NAMES, "user-new"], 1, seed=1))
    run_until_idle(tighter.worker())
    assert {name: tighter.store.peek(name).version for name in NAMES} == dict.fromkeys(NAMES, 2)
    assert [letter.model for letter in letters(tighter)] == ["user-new"]


def test_a_model_that_is_deleted_makes_room_for_another_one(tmp_path):
    world = limited(tmp_path, 2)
    world.send(*of_each(NAMES[:2], 1))
    run_until_idle(worker := world.worker())
    world.store.delete(NAMES[0])
    world.send(*of_each(["user-other"], 1))
    run_until_idle(worker)
    assert (letters(world), listed(world)) == ([], [NAMES[1], "user-other"])


def test_models_that_other_workers_begin_count_towards_the_limit(tmp_path):
    world = limited(tmp_path, 3)
    world.send(*of_each(NAMES[:1], 1))
    run_until_idle(worker := world.worker())
    for name in ("user-a", "user-b"):
        world.store.claim(name)
    world.send(*of_each(["user-c"], 1))
    run_until_idle(worker)
    assert [letter.model for letter in letters(world)] == ["user-c"]


def test_only_names_that_came_or_went_are_matched_with_patterns_again(tmp_path, monkeypatch):
    world, now = World(tmp_path), [0.0]
    worker = world.worker()
    object.__setattr__(worker.services, "clock", lambda: now[0])
    for name in NAMES:
        world.store.claim(name)
    limit, specs, match = worker.services.newcomers, worker.services.specs, Configuration.match
    matched = []
    monkeypatch.setattr(Configuration, "match", lambda self, name: (matched.append(name), match(self, name))[1])
    for change, expected in (
        (lambda: None, NAMES),
        (lambda: world.store.delete(NAMES[0]), NAMES[:1]),
        (lambda: world.store.claim("user-other"), ["user-other"]),
    ):
        change()
        matched.clear()
        now[0] += 100.0
        limit._look(specs, world.store, worker.services.clock)
        assert sorted(matched) == expected
        assert limit._counts["user-*"] == len(listed(world))


@pytest.mark.parametrize("turn", [1, 2, 4])
def test_many_begin_in_turns_and_learn_what_they_would_at_once(tmp_path, monkeypatch, turn):
    world, at_once = World(tmp_path / "turns"), World(tmp_path / "once")
    sent = [b"nonsense", *of_each([*NAMES, "shop"], 3), *of_each(["user-late", *NAMES], 2, seed=1)]
    at_once.send(*sent)
    run_until_idle(at_once.worker())
    monkeypatch.setattr(new_model_limits, "MAX_NEW_A_TURN", turn)
    world.send(*sent)
    run_until_idle(world.worker())
    assert states(world) == states(at_once)
    assert len(states(world)) == 8
    assert [letter.offset for letter in letters(world)] == [letter.offset for letter in letters(at_once)] == [0]


def test_a_signal_is_heard_between_two_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(new_model_limits, "MAX_NEW_A_TURN", 2)
    world = World(tmp_path)
    worker = world.worker()
    claim_all = world.store.claim_all
    monkeypatch.setattr(world.store, "claim_all", lambda names: (worker.stop(), claim_all(names))[1])
    world.send(*of_each(NAMES, 2))
    worker.run()
    assert listed(world) == NAMES[:2]
    assert {name: world.store.peek(name).version for name in NAMES[:2]} == dict.fromkeys(NAMES[:2], 1)
    monkeypatch.undo()
    run_until_idle(world.worker())
    assert {name: world.store.peek(name).version for name in NAMES} == dict.fromkeys(NAMES, 2)


def test_a_worker_told_to_stop_leaves_what_saving_has_no_time_for(tmp_path, monkeypatch):
    monkeypatch.setattr("omdml.workers.learning.schedule.FINISH_S", 0.0)
    monkeypatch.setattr("omdml.workers.learning.partition.portions.PORTION", 2)
    world, whole = World(tmp_path / "stopped"), World(tmp_path / "whole")
    for each_world in (world, whole):
        each_world.send(*of_each(NAMES, 3))
    run_until_idle(whole.worker())
    worker = world.worker()
    worker.schedule.saved_at = float("inf")
    worker.step()
    with structlog.testing.capture_logs() as lines:
        worker.stop()
        worker.run()
    (line,) = [line for line in lines if line["event"] == "stopped_partly_unsaved"]
    assert line["models"] == 4
    assert len(states(world)) == 2
    run_until_idle(world.worker())
    assert states(world) == states(whole)


def test_a_store_that_fails_amid_the_claims_of_many_costs_no_event(tmp_path, monkeypatch):
    world = World(tmp_path)
    claim, calls = world.store.claim, []

    def failing(name):
        calls.append(name)
        if len(calls) == 4:
            raise StoreError("away")
        return claim(name)

    monkeypatch.setattr(world.store, "claim", failing)
    world.send(*of_each(NAMES, 3))
    run_until_idle(world.worker())
    assert len(calls) > len(NAMES)
    assert {name: world.store.peek(name).version for name in NAMES} == dict.fromkeys(NAMES, 3)


def test_a_second_brings_no_more_than_the_rate(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    now = 0.0
    object.__setattr__(worker.services, "newcomers", limit := Newcomers(rate=2.0))
    object.__setattr__(worker.services, "clock", lambda: now)
    world.send(*of_each(NAMES, 1))
    begun = []
    for second in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5):
        now = second
        worker.step()
        begun.append(len(listed(world)))
    assert begun == [2, 3, 4, 5, 6, 6]
    # After any pause, no more models may begin at once than in one second.
    assert limit.room(10.0) == 2


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"models": {"shop": {"max_models": 5}}}, "models.shop.max_models: only a pattern"),
        ({"models": {"shop-*": {"max_models": 0}}}, "max_models"),
        ({"models": {"shop-*": {"max_models": "many"}}}, "max_models"),
        ({"worker": {"new_models_s": 5}}, "worker.new_models_s is 5, expected a number from 100 to 1,000,000"),
    ],
)
def test_limits_out_of_range_are_refused_by_their_name(table, message):
    with pytest.raises(ConfigurationError, match=message.replace("*", r"\*")):
        load(None, {}, {"catalogues": {"items": {"path": "items"}}, "models": {"shop": {}}, **table})


def test_the_limit_of_new_models_is_no_part_of_their_digest(tmp_path):
    configs = [limited(tmp_path / str(most), most).configuration.models["user-*"] for most in (1, 10_000)]
    assert configs[0].digest() == configs[1].digest()


def test_an_operator_may_begin_more_than_the_limit(tmp_path):
    world = limited(tmp_path, 1)
    world.send(*of_each(NAMES[:1], 1))
    run_until_idle(worker := world.worker())
    spec, topic_id = worker.services.specs.of(NAMES[1]), world.log.topic_id
    upkeep.copy(world.store, NAMES[0], NAMES[1], spec, topic_id, world.store.placement(topic_id), "test")
    world.send(*of_each(NAMES[1:3], 1))
    run_until_idle(worker)
    assert listed(world) == NAMES[:2]
    assert [letter.model for letter in letters(world)] == [NAMES[2]]


def test_a_restarted_worker_claims_models_together_whether_or_not_they_are_new(tmp_path, monkeypatch):
    world, whole = World(tmp_path / "restarted"), World(tmp_path / "whole")
    before, after = of_each(NAMES, 2), of_each([*NAMES, "user-new"], 2, seed=1)
    whole.send(*before, *after)
    run_until_idle(whole.worker())
    world.send(*before)
    run_and_leave(world.worker())
    claimed, claim_all = [], world.store.claim_all
    monkeypatch.setattr(world.store, "claim_all", lambda names: (claimed.append(list(names)), claim_all(names))[1])
    world.send(*after)
    run_until_idle(world.worker())
    assert claimed == [[*NAMES, "user-new"]]
    assert states(world) == states(whole)


def test_models_that_have_all_of_a_batch_are_not_claimed_with_others(tmp_path, monkeypatch):
    world = World(tmp_path)
    world.send(*of_each(NAMES, 2))
    run_and_leave(world.worker())
    first = world.store.peek(NAMES[0]).next
    worker = world.worker()
    claimed, claim_all = [], world.store.claim_all
    monkeypatch.setattr(world.store, "claim_all", lambda names: (claimed.append(list(names)), claim_all(names))[1])
    world.send(*events(1, 1, NAMES[0]))
    monkeypatch.setattr("omdml.workers.learning.partition.watermark.Mark.start", lambda *_: 0)
    run_until_idle(worker)
    assert claimed == [[NAMES[0]]]
    assert world.store.peek(NAMES[0]).next > first


def test_many_new_models_are_saved_at_once_if_nothing_is_left_to_learn(tmp_path):
    world, names, seconds = World(tmp_path), [f"user-{number}" for number in range(2 * PORTION)], [10.0]
    world.send(*of_each(names, 1))
    world.now, save_all = lambda: seconds[0], world.store.save_all

    def slow(saves, placement=None):
        seconds[0] += 1
        return save_all(saves, placement)

    world.store.save_all = slow
    worker = paced(world.worker(), save=1.0)
    worker.step()
    assert 0 < len(world.store.positions(names)) < len(names)
    # Time goes by only while models are saved.
    run_until_idle(worker, turns=4)
    assert len(world.store.positions(names)) == len(names)
