"""The share of events that is never learned from: which ones, what they count for, what they say of a metric."""

from __future__ import annotations

import inspect
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import LEARNERS, LOMDML
from omdml.comparisons import conversion
from omdml.errors import StoreError
from omdml.feedback import Ranking, Triplet, encode
from omdml.margins import margins
from streams.protocols import Partition, Record
from tests.worlds import TASKS, World, catalogue, events, feedback, letters, not_held_back, run_until_idle, triplets
from workers.config import GuardConfig
from workers.hold_out import COMPARISONS, WINDOW, HeldEvent, HoldOut, judgement, opposed
from workers.intake import Batch
from workers.lookup import Lookup

BROUGHT = {"new": {"shape": [0.5] * 9, "noise": [0.5] * 5}}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr("workers.learner.STOP_S", 0.0)


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    return catalogue(tmp_path_factory.mktemp("items"))


def guarded(folder, models=None, **options):
    """A world whose worker holds events back."""
    world = World(folder, models=models)
    world.configuration = msgspec.structs.replace(world.configuration, guard=GuardConfig(**options))
    return world


def kept(world, model="shop"):
    """The hold-out that a successor would go on with, and the state of its learner."""
    checkpoint = world.store.claim(model).checkpoint
    return msgspec.convert(checkpoint.progress["hold_out"], HoldOut), checkpoint.state


def located(said, items, learner=LOMDML):
    """Events as a model of this learner takes them; the first is at offset 0."""
    batch = Batch()
    for offset, event in enumerate(said):
        record = Record(Partition("topic", 0), offset, encode(event))
        batch.add(record, event, conversion(learner.accepts)(event, learner.accepts))
    found, refused = Lookup("shop", learner, items).locate(batch)
    assert not refused
    return found


def own_vectors(event):
    """The same event, which brings vectors of its own."""
    return msgspec.structs.replace(event, features=BROUGHT)


# which events
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_every_fiftieth_event_is_held_back_by_its_order_alone_and_across_restarts(tmp_path, batch):
    world = guarded(tmp_path)
    for start in range(0, 260, 65):
        world.send(*list(events(260))[start : start + 65])
        worker = world.worker()
        worker.config = type(worker.config)(max_poll_records=batch, checkpoint_interval_s=5.0)
        for _ in range(10):
            worker.step()
        world.log.expel(worker.services.source)  # killed: the next one takes some of it again
    run_until_idle(world.worker(), turns=400)
    twin = LOMDML(dims=dict(world.catalogue.dims), rank=3)
    twin.learn_many(not_held_back(triplets(260)), world.catalogue.features)
    hold_out, state = kept(world)
    assert state == twin.to_bytes()
    rows = triplets(260)[49::50].tolist()
    assert hold_out == HoldOut(every=50, since=10, count=5, kept=[HeldEvent([row]) for row in rows])


def test_with_the_guard_off_every_event_is_learned(tmp_path):
    world = guarded(tmp_path, on=False)
    world.send(*events(120))
    run_until_idle(world.worker())
    twin = LOMDML(dims=dict(world.catalogue.dims), rank=3)
    twin.learn_many(triplets(120), world.catalogue.features)
    assert kept(world) == (HoldOut(), twin.to_bytes())


def literal_split(plain, every):
    """One event after another: due after so many, and held back where it can be."""
    held, since = [], 0
    for at, can in enumerate(plain):
        since += 1
        if since >= every and can:
            held.append(at)
            since = 0
    return held, since


@settings(max_examples=80, deadline=None)
@given(data=st.data(), every=st.integers(2, 6), plain=st.lists(st.booleans(), max_size=40))
def test_which_events_are_held_back_depends_on_no_batch(items, data, every, plain):
    said = [event if can else own_vectors(event) for event, can in zip(feedback("triplet", 40), plain, strict=False)]
    hold_out, learned, at = HoldOut(every=every), [], 0
    while at < len(said):
        count = data.draw(st.integers(1, len(said) - at))
        part = located(said[at : at + count], items)
        learned += [at + record.offset for record in hold_out.split(part, items, ())[0].events.records]
        at += count
    held, since = literal_split(plain, every)
    assert learned == [at for at in range(len(said)) if at not in held]
    assert hold_out == HoldOut(every, since, len(held), [HeldEvent([row]) for row in triplets(40)[held].tolist()])


@pytest.mark.parametrize(("strange", "reason"), [({"features": BROUGHT}, None), ({"task": "three"}, "unknown_task"),
                                                 ({"task": "default"}, "unknown_task")])  # fmt: skip
def test_an_event_that_cannot_be_kept_is_left_to_the_learner_and_the_next_is_held_back(tmp_path, strange, reason):
    world = guarded(tmp_path, models={"shop": {"learner": "cpmtml", "rank": 2, "tasks": list(TASKS)}}, hold_out=5)
    said = list(feedback("pair", 9))
    said[4] = msgspec.structs.replace(said[4], **strange)
    world.send(*map(encode, said))
    run_until_idle(world.worker())
    hold_out, state = kept(world)
    assert [letter.reason for letter in letters(world)] == ([reason] if reason else [])
    assert (hold_out.count, hold_out.since) == (1, 3)
    assert hold_out.kept[0].rows == [[int(said[5].left[1:]), int(said[5].right[1:])]]
    assert LEARNERS["cpmtml"].from_bytes(state).version == 8 - len(letters(world))


def test_an_event_that_becomes_a_letter_before_it_is_learned_does_not_count_as_accepted(tmp_path):
    world = guarded(tmp_path, hold_out=5)
    said = list(events(6))
    unknown = b'{"type":"triplet","model":"shop","query":"i0","relevant":"x","irrelevant":"y"}'
    world.send(*said[:3], b"{nonsense", unknown, *said[3:])
    run_until_idle(world.worker())
    assert [event.rows for event in kept(world)[0].kept] == [[row] for row in triplets(6)[4:5].tolist()]


def test_what_is_held_back_counts_neither_as_learned_nor_as_fresh_nor_as_a_mistake(tmp_path):
    world = guarded(tmp_path)
    said = list(events(50))
    said[49] = said[49].replace(b'"at":1.0', b'"at":9.0')
    world.send(*said)
    worker = world.worker()
    run_until_idle(worker)
    checkpoint, (pointer, snapshot) = world.store.claim("shop").checkpoint, world.store.load("shop")
    assert (checkpoint.version, pointer.version, checkpoint.next) == (49, 49, 50)
    assert checkpoint.progress["mistakes"]["count"] == 49
    assert (checkpoint.event_time, snapshot.event_time) == (1.0, 1.0)
    said = worker.services.metrics.registry.get_sample_value
    assert said("omdml_updates_total", {"model": "shop"}) <= 49
    assert said("omdml_learned_version", {"model": "shop"}) == 49


def test_an_event_that_was_held_back_last_is_not_held_back_twice_after_a_crash(tmp_path, monkeypatch):
    world = guarded(tmp_path)
    worker = world.worker()
    world.send(*events(50))
    with monkeypatch.context() as away:
        away.setattr("workers.learner.RETRY_S", 0.0)
        away.setattr(world.store, "move_mark", unreachable)
        run_until_idle(worker)
    world.log.expel(worker.services.source)
    world.send(*events(49, seed=1))
    run_until_idle(world.worker())
    assert (kept(world)[0].count, kept(world)[0].since) == (1, 49)


def unreachable(*_):
    """What a server that is away answers."""
    raise StoreError("store memory: away")


def test_an_event_that_is_held_back_alone_is_taken_all_the_same(tmp_path):
    world = guarded(tmp_path)
    world.send(*list(events(50))[:49])
    worker = world.worker()
    run_until_idle(worker)
    before = world.store.current("shop")
    world.send(*list(events(50))[49:])
    run_until_idle(worker)
    assert world.store.marks(world.log.partitions)[world.log.partitions[0]] == 50
    assert world.store.current("shop") == before
    assert kept(world)[0].count == 1


# what is kept
def test_the_newest_are_kept(items):
    hold_out = HoldOut(every=2)
    for _ in range(3):
        hold_out.split(located(feedback("triplet", 200), items), items, ())
    assert (hold_out.count, len(hold_out.kept)) == (300, WINDOW)
    rows = np.tile(triplets(200)[1::2], (3, 1))[-WINDOW:].tolist()
    assert hold_out.kept == [HeldEvent([row]) for row in rows]


def test_of_an_event_of_many_comparisons_some_are_kept_evenly_chosen_and_the_event_counts_once(items):
    sides = {"relevant": tuple(f"i{i}" for i in range(1, 6)), "irrelevant": tuple(f"i{i}" for i in range(6, 12))}
    ranking = Ranking(model="shop", query="i0", **sides)
    triplet = Triplet(model="shop", query="i0", relevant="i1", irrelevant="i2")
    hold_out = HoldOut(every=2)
    learned, _ = hold_out.split(located([triplet, ranking, triplet, triplet], items), items, ())
    assert [record.offset for record in learned.events.records] == [0, 2]
    many, one = hold_out.kept
    assert len(many.rows) == COMPARISONS
    assert (many.rows[0], many.rows[-1]) == ([0, 1, 6], [0, 5, 11])
    assert one.rows == [[0, 1, 2]]
    metric = started("lomdml", items).metric
    each = margins(metric, np.array(many.rows), items.features)
    np.testing.assert_allclose(hold_out.margins(metric, items.features), [each.mean(), *margins(
        metric, np.array(one.rows), items.features)])  # fmt: skip


def test_a_new_generation_of_the_catalogue_forgets_rows_of_the_one_before(tmp_path):
    world = guarded(tmp_path)
    world.send(*events(120))
    worker = world.worker()
    run_until_idle(worker)
    world.log.expel(worker.services.source)
    world.catalogue = catalogue(tmp_path / "other", seed=1)
    world.send(*events(1, seed=1))
    run_until_idle(world.worker())
    assert kept(world)[0] == HoldOut(every=50, since=21, count=2, kept=[])


# what it says of a metric
def options(name):
    """What a model with this learner is configured with."""
    there = inspect.signature(LEARNERS[name]).parameters
    small = {"rank": 3, "clusters": 2, "tasks": list(TASKS)}
    return {option: value for option, value in small.items() if option in there}


def started(name, items):
    """A learner of this name at its start."""
    learner = LEARNERS[name](dims=dict(items.dims), **options(name))
    learner.start(items.features)
    return learner


@pytest.mark.parametrize("name", LEARNERS)
def test_whatever_a_learner_learns_from_says_something_of_its_metrics(tmp_path, name):
    world = guarded(tmp_path, models={name: {"learner": name, **options(name)}}, hold_out=3)
    for kind in sorted(LEARNERS[name].accepts):
        world.send(*map(encode, feedback(kind, 27, model=name)))
    run_until_idle(world.worker())
    hold_out, state = kept(world, name)
    assert letters(world) == []
    assert hold_out.count == 9 * len(LEARNERS[name].accepts)
    found = hold_out.margins(LEARNERS[name].from_bytes(state).metric, world.catalogue.features)
    assert len(found)
    assert np.all(np.abs(found) <= 1)
    assert np.any(found != 0)


@pytest.mark.parametrize("name", LEARNERS)
def test_events_that_were_never_held_back_say_nothing(items, name):
    assert HoldOut().margins(started(name, items).metric, items.features).shape == (0,)


def pair(task, similar, left, right):
    """A pair that was held back."""
    return HeldEvent([[left, right]], similar=similar, task=task)


def test_similar_pairs_are_compared_with_dissimilar_ones_of_their_task_the_newest_first(items):
    said = [pair("one", True, 1, 2), pair("one", True, 3, 4), pair("other", False, 5, 6), pair("one", False, 7, 8)]
    assert {task: rows.tolist() for task, rows in opposed(said).items()} == {"one": [[3, 4, 7, 8]], "other": []}
    metric = started("cpmtml", items).metric
    found = HoldOut(kept=said).margins(metric, items.features)
    np.testing.assert_allclose(found, margins(metric, np.array([[3, 4, 7, 8]]), items.features, "one"))


@pytest.mark.parametrize("every", [2, 3, 50])
def test_pairs_held_back_oppose_each_other_however_they_alternate_in_the_log(items, every):
    metric, hold_out = started("cpmtml", items).metric, HoldOut(every=every)
    said = [msgspec.structs.replace(event, task="one") for event in feedback("pair", 10 * every)]
    assert all(event.similar != after.similar for event, after in pairwise(said))
    hold_out.split(located(said, items, LEARNERS["cpmtml"]), items, TASKS)
    assert {event.similar for event in hold_out.kept} == {True, False}
    assert len(hold_out.margins(metric, items.features)) == len(hold_out.kept) // 2


def test_a_log_of_similar_pairs_only_is_learned_all_but_one(items):
    alike = [event for event in feedback("pair", 40) if event.similar and event.task == "one"]
    hold_out = HoldOut(every=2)
    hold_out.split(located(alike, items, LEARNERS["cpmtml"]), items, TASKS)
    assert hold_out.count == 1
    assert hold_out.margins(started("cpmtml", items).metric, items.features).shape == (0,)


def test_the_sets_of_a_judgement_come_back_as_they_were_said(items):
    (said,) = feedback("set", 1)
    hold_out = HoldOut(every=2, since=1)
    hold_out.split(located([said], items, LEARNERS["setnet"]), items, ())
    found = judgement(hold_out.kept[0])
    assert found.query.tolist() == items.rows(said.query).tolist()
    assert [one.tolist() for one in found.relevant] == [
        items.rows([said.relevant[0]]).tolist(), items.sets[said.relevant[1]].tolist()
    ]  # fmt: skip
    assert [one.tolist() for one in found.irrelevant] == [items.sets[said.irrelevant[0]].tolist()]
