"""Which events are never learned: by a keyed hash of their position, whatever the batches; what they count for."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import LEARNERS, LOMDML
from omdml.comparisons import conversion
from omdml.feedback import Ranking, Triplet, encode
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.configuration.config import GuardConfig
from omdml.workers.events.decoding import Batch
from omdml.workers.events.lookup import Lookup
from omdml.workers.model.judging.held_out_draw import Draw, HoldOutState, fingerprint, split
from omdml.workers.model.judging.held_out_window import COMPARISONS, margins_on
from tests.support.deep import examples
from tests.support.worlds import (
    TASKS,
    World,
    catalogue,
    events,
    feedback,
    is_held_out,
    letters,
    not_held_out,
    run_until_idle,
    tasks_of,
    triplets,
    whole_log,
)

BROUGHT = {"new": {"shape": [0.5] * 9, "noise": [0.5] * 5}}
SECRET = b"5" * 32


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    return catalogue(tmp_path_factory.mktemp("items"))


def guarded(folder, models=None, **options):
    """A world whose worker holds events out."""
    world = World(folder, models=models)
    world.store = MemoryStore(secret=SECRET)
    world.configuration = msgspec.structs.replace(world.configuration, guard=GuardConfig(**options))
    return world


def saved_hold_out(world, model="shop"):
    """The hold-out that a successor would go on with, and the state of its learner."""
    checkpoint = world.store.claim(model).checkpoint
    return msgspec.convert(checkpoint.progress["hold_out"], HoldOutState), checkpoint.state


def located(feedback_events, items, learner=LOMDML, first=0):
    """The comparisons of these events as a model with this learner takes them."""
    batch = Batch()
    for offset, event in enumerate(feedback_events, start=first):
        record = Record(Partition("topic", 3), offset, encode(event))
        batch.add(record, event, conversion(learner.accepts)(event))
    result, refused = Lookup("shop", learner, items).locate(batch)
    assert not refused
    return result


# Which events are held out
@given(
    secret=st.binary(min_size=32, max_size=32),
    model=st.text(st.characters(codec="utf-8"), max_size=8),
    partition=st.integers(0, 2**32 - 1),
    offset=st.integers(0, 2**63 - 1),
    every=st.integers(2, 60),
)
def test_the_draw_is_the_keyed_hash_word_for_word(secret, model, partition, offset, every):
    drawn = Draw(secret, model).held_out([Record(Partition("topic", partition), offset, b"")], every)
    assert drawn == ([0] if is_held_out(secret, model, partition, offset, every) else [])


def test_one_event_of_fifty_is_held_out_by_secret_model_and_partition():
    def drawn(secret, model, partition):
        records = [Record(Partition("topic", partition), offset, b"") for offset in range(50_000)]
        return set(Draw(secret, model).held_out(records, 50))

    results = [
        drawn(SECRET, "shop", 0),
        drawn(b"6" * 32, "shop", 0),
        drawn(SECRET, "shop2", 0),
        drawn(SECRET, "shop", 1),
    ]
    assert all(850 < len(result) < 1150 for result in results)
    assert all(len(results[0] & other) < 60 for other in results[1:])


def test_a_fingerprint_tells_two_secrets_apart_and_shows_neither():
    assert fingerprint(SECRET) == fingerprint(SECRET) != fingerprint(b"6" * 32)
    assert len(fingerprint(SECRET)) == 16
    assert SECRET.hex() not in fingerprint(SECRET)


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_what_is_held_out_depends_on_no_batch_and_no_restart(tmp_path, batch):
    world = guarded(tmp_path)
    for start in range(0, 260, 65):
        world.send(*list(events(260))[start : start + 65])
        worker = world.worker()
        worker.schedule.config = type(worker.schedule.config)(max_poll_records=batch, checkpoint_interval_s=5.0)
        for _ in range(10):
            worker.step()
        # It is killed: the next one takes some of it again.
        world.log.expel(worker.services.source)
    run_until_idle(world.worker(), turns=300)
    learned = not_held_out(whole_log(world), SECRET)
    twin = LOMDML(dims=dict(world.catalogue.dims), rank=3)
    twin.learn_many(learned, world.catalogue.features)
    hold_out, state = saved_hold_out(world)
    assert state == twin.to_bytes()
    assert hold_out.count == 260 - len(learned) == len(hold_out.kept) > 0
    assert hold_out.secret == fingerprint(SECRET)


def test_with_the_guard_off_every_event_is_learned(tmp_path):
    world = guarded(tmp_path, on=False)
    world.send(*events(120))
    run_until_idle(world.worker())
    twin = LOMDML(dims=dict(world.catalogue.dims), rank=3)
    twin.learn_many(triplets(120), world.catalogue.features)
    hold_out, state = saved_hold_out(world)
    assert (hold_out.count, hold_out.kept, state) == (0, [], twin.to_bytes())


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), every=st.integers(2, 6), plain=st.lists(st.booleans(), max_size=40))
def test_the_split_is_total_and_independent_of_batch_boundaries(items, data, every, plain):
    sent = [
        event if is_plain else msgspec.structs.replace(event, features=BROUGHT)
        for event, is_plain in zip(feedback("triplet", 40), plain, strict=False)
    ]
    learned, held, start = [], [], 0
    while start < len(sent):
        count = data.draw(st.integers(1, len(sent) - start))
        parted = split(located(sent[start : start + count], items, first=start), Draw(SECRET, "shop"), every, items, ())
        learned += [record.offset for record in parted.to_learn.events.records]
        held += sorted(parted.offsets)
        for out, offset in zip(parted.held_out, sorted(parted.offsets), strict=True):
            assert (out.event is None) is not plain[offset]
            before = sum(start <= number < offset for number in learned)
            assert out.before == before
        start += count
    assert held == [number for number in range(len(sent)) if is_held_out(SECRET, "shop", 3, number, every)]
    assert sorted(learned + held) == list(range(len(sent)))


def test_an_event_with_its_own_vectors_is_held_out_and_not_kept(tmp_path):
    world = guarded(tmp_path, hold_out=2)
    world.send(*(encode(msgspec.structs.replace(event, features=BROUGHT)) for event in feedback("triplet", 40)))
    run_until_idle(world.worker())
    hold_out, state = saved_hold_out(world)
    learned = len(not_held_out(whole_log(world), SECRET, every=2))
    assert (LEARNERS["lomdml"].from_bytes(state).version, hold_out.count, hold_out.kept) == (learned, 40 - learned, [])


def test_a_pair_of_an_unknown_task_is_a_dead_letter_and_never_held_out(tmp_path):
    world = guarded(tmp_path, models={"shop": {"learner": "cpmtml", "rank": 2, "tasks": list(TASKS)}}, hold_out=2)
    sent = [msgspec.structs.replace(event, task="three") for event in feedback("pair", 20)]
    world.send(*map(encode, sent))
    run_until_idle(world.worker())
    assert [letter.reason for letter in letters(world)] == ["unknown_task"] * 20


def test_held_out_events_count_not_as_learned_fresh_or_mistaken(tmp_path):
    world = guarded(tmp_path)
    offset = next(offset for offset in range(1000) if is_held_out(SECRET, "shop", 0, offset))
    sent = list(events(offset + 1))
    sent[offset] = sent[offset].replace(b'"at":1.0', b'"at":9.0')
    world.send(*sent)
    worker = world.worker()
    run_until_idle(worker)
    checkpoint, (pointer, snapshot) = world.store.claim("shop").checkpoint, world.store.load("shop")
    assert (checkpoint.version, pointer.version, checkpoint.next) == (offset, offset, offset + 1)
    assert checkpoint.progress["mistakes"]["count"] == offset
    assert (checkpoint.event_time, snapshot.event_time) == (1.0, 1.0)
    sample = worker.services.metrics.registry.get_sample_value
    labels = {"model": "shop", "kind": "triplet", "outcome": "held_out"}
    assert (sample("omdml_worker_learned_version", {"model": "shop"}), sample("omdml_worker_events_total", labels)) == (
        offset,
        1.0,
    )


# Which of them are kept to judge with
def test_of_a_ranking_some_comparisons_are_kept_and_it_counts_once(items):
    sides = {"relevant": tuple(f"i{i}" for i in range(1, 6)), "irrelevant": tuple(f"i{i}" for i in range(6, 12))}
    ranking = Ranking(model="shop", query="i0", **sides)
    triplet = Triplet(model="shop", query="i0", relevant="i1", irrelevant="i2")
    offset = next(offset for offset in range(1000) if is_held_out(SECRET, "shop", 3, offset, 2))
    parted = split(located([ranking, triplet], items, first=offset), Draw(SECRET, "shop"), 2, items, ())
    other = is_held_out(SECRET, "shop", 3, offset + 1, 2)
    assert len(parted.held_out) == 1 + other
    event = parted.held_out[0].event
    assert (len(event.rows), event.rows[0], event.rows[-1]) == (COMPARISONS, [0, 1, 6], [0, 5, 11])


def test_a_new_generation_of_the_catalogue_forgets_rows_of_the_one_before(tmp_path):
    world = guarded(tmp_path)
    world.send(*events(300))
    worker = world.worker()
    run_until_idle(worker)
    world.log.expel(worker.services.source)
    world.catalogue = catalogue(tmp_path / "other", seed=1)
    count = saved_hold_out(world)[0].count
    assert count > 0
    world.send(*events(1, seed=1))
    run_until_idle(world.worker())
    hold_out, _ = saved_hold_out(world)
    assert (hold_out.count, hold_out.kept) == (count, [])


@pytest.mark.parametrize("name", LEARNERS)
def test_every_kind_that_a_learner_learns_from_judges_its_metrics_too(tmp_path, name):
    small = {"rank": 3, "clusters": 2, "tasks": list(TASKS)}
    options = {option: value for option, value in small.items() if option in LEARNERS[name].__init__.__annotations__}
    world = guarded(tmp_path, models={name: {"learner": name, "coordinates": "features", **options}}, hold_out=2)
    for kind in sorted(LEARNERS[name].accepts):
        world.send(*map(encode, feedback(kind, 27, 0, name, tasks_of(name))))
    run_until_idle(world.worker())
    hold_out, state = saved_hold_out(world, name)
    assert letters(world) == []
    assert hold_out.count == len(hold_out.kept) > 5
    results = margins_on(LEARNERS[name].from_bytes(state).metric, hold_out.kept, world.catalogue.features)
    assert len(results)
    assert np.all(np.abs(results) <= 1)
    assert np.any(results != 0)
