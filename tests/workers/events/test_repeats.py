"""Events that bring an id and come again: learned once, whatever lies between."""

from __future__ import annotations

from collections import deque
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from omdml.errors import CorruptError
from omdml.feedback import KINDS, decode, encode
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Record
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.configuration.config import GuardConfig
from omdml.workers.configuration.specs import Specs
from omdml.workers.events.decoding import sort_out
from omdml.workers.events.repeats import WINDOW, SeenIds
from omdml.workers.node.http.openapi import openapi
from omdml.workers.operate.replay import ReplayedModel, nothing_timed
from tests.support.deep import examples
from tests.support.learning.owned_models import HOME, SECRET, begun, resumed
from tests.support.learning.owned_models import specs as specs
from tests.support.learning.worker_metrics import read
from tests.support.worlds import World, events, feedback, letters, run_until_idle

# The window of ids in these tests, which they can fill.
SMALL = 5
EVENTS = list(feedback("triplet", 40))
IDS = st.sampled_from([None, *"abcdefgh"])


def records(sequence):
    """A record of each event at its place in the sequence, and no record of None.

    So the events that stay keep their offsets, by which some are held out.
    """
    return [Record(HOME, offset, encode(event)) for offset, event in enumerate(sequence) if event is not None]


def taken(specs, sequence, cuts=(), name="shop"):
    """A model that took these events in batches that end at these cuts, and was claimed again between them.

    Returns the model, and the offsets of events that it passed over as repeats.
    """
    model, repeated, ends = begun(specs, name), [], sorted({*cuts, len(sequence)})
    for begin, end in zip([0, *ends], ends, strict=False):
        batch = [record for record in records(sequence) if begin <= record.offset < end]
        batches, refused = sort_out(batch, specs.accepts)
        assert not refused
        if name in batches:
            model.take(batches[name], nothing_timed)
            repeated += sorted(model.repeated)
        model = resumed(specs, model)
    return model, repeated


def learned_state(model):
    """Everything in a checkpoint but the position, the windows, and how many events there were."""
    checkpoint = model.checkpoint("test")
    progress = {
        name: value for name, value in checkpoint.progress.items() if name not in ("seen", "tally", "stretches")
    }
    return replace(checkpoint, next=0, progress=progress).to_bytes()


def without_repeats(sequence):
    """The rule, literally: the events (None for a repeat), the repeats' offsets, and the ids remembered."""
    window, first_times, repeated = deque(maxlen=SMALL), [], []
    for offset, event in enumerate(sequence):
        if event.id is not None and event.id in window:
            repeated.append(offset)
            first_times.append(None)
            continue
        first_times.append(event)
        if event.id is not None and event.query != "unknown":
            window.append(event.id)
    return first_times, repeated, window


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), ids=st.lists(IDS, min_size=1, max_size=40), cuts=st.sets(st.integers(1, 39)))
def test_what_is_learned_follows_the_literal_rule_in_any_batches(specs, data, ids, cuts):
    unknown = data.draw(st.sets(st.integers(0, 39), max_size=5))
    sent = [replace(event, id=name) for event, name in zip(EVENTS, ids, strict=False)]
    sent = [replace(event, query="unknown") if index in unknown else event for index, event in enumerate(sent)]
    first_times, repeated, window = without_repeats(sent)
    with patch("omdml.workers.events.repeats.WINDOW", SMALL):
        model, result = taken(specs, sent, {cut for cut in cuts if cut < len(sent)})
        twin, _ = taken(specs, [event and replace(event, id=None) for event in first_times])
        expected = SeenIds()
        for name in window:
            batches, _ = sort_out(records([replace(EVENTS[0], id=name)]), specs.accepts)
            for events in expected.without_repeats(batches["shop"]):
                expected.add(events, [])
    assert result == repeated
    assert learned_state(model) == learned_state(twin)
    assert model.seen.to_bytes() == expected.to_bytes()
    assert model.next == len(sent)


@settings(max_examples=examples(25), deadline=None)
@given(data=st.data(), kind=st.sampled_from(["triplet", "quadruplet", "pair", "set"]))
def test_repeats_leave_the_checkpoint_of_every_kind_as_it_was(specs, data, kind):
    name = "shop" if kind == "triplet" else kind
    once = [replace(event, id=f"{index}") for index, event in enumerate(feedback(kind, 20, model=name))]
    together, alone = [], []
    for event in once:
        together.append(event)
        together += [data.draw(st.sampled_from(together)) for _ in range(data.draw(st.integers(0, 2)))]
        alone += [event, *[None] * (len(together) - len(alone) - 1)]
    model, repeated = taken(specs, together, data.draw(st.sets(st.integers(1, 19), max_size=3)), name)
    twin, repeated_alone = taken(specs, alone, (), name)
    assert (len(repeated), repeated_alone) == (len(together) - len(once), [])
    assert learned_state(model) == learned_state(twin)
    assert model.seen.to_bytes() == twin.seen.to_bytes()


def test_events_without_an_id_leave_no_trace_of_the_window(specs):
    model, repeated = taken(specs, [EVENTS[0], EVENTS[0], EVENTS[0]])
    assert model.learner.version + model.progress.hold_out.count == 3
    assert (repeated, model.seen.to_bytes()) == ([], b"")


def test_the_window_holds_the_newest_ids_and_counts_as_memory(specs):
    model = begun(specs)
    model.shrink()
    small = model.size
    sent = [replace(EVENTS[0], id=f"{number}") for number in range(WINDOW + 10)]
    batches, _ = sort_out(records(sent), specs.accepts)
    model.take(batches["shop"], nothing_timed)
    model.shrink()
    assert len(model.seen.to_bytes()) == 8 * WINDOW
    assert model.size >= small + 8 * WINDOW
    for number, remembered in ((10, True), (WINDOW + 9, True), (9, False)):
        version = model.learner.version
        batches, _ = sort_out(records([sent[number]]), specs.accepts)
        model.take(batches["shop"], nothing_timed)
        learned = model.learner.version > version or bool(model.held_out)
        assert learned is not remembered, number


@pytest.mark.parametrize("data", [b"1234567", b"12345678" * (WINDOW + 1)])
def test_a_damaged_window_is_refused_with_what_was_expected(data):
    with pytest.raises(CorruptError, match=f"{len(data)} bytes, expected a multiple of 8"):
        SeenIds(data)


# In a worker
def identified(count):
    """Events that bring an id each."""
    return [encode(replace(decode(event), id=f"request {index}")) for index, event in enumerate(events(count))]


def guarded(folder):
    world = World(folder)
    world.store = MemoryStore(secret=SECRET)
    world.configuration = replace(world.configuration, guard=GuardConfig(hold_out=10))
    return world


@pytest.mark.parametrize("killed", [False, True])
def test_a_worker_learns_what_was_posted_twice_once_and_counts_it(tmp_path, killed):
    world, once = guarded(tmp_path / "one"), guarded(tmp_path / "other")
    events_sent = identified(30)
    world.send(*events_sent[:20])
    run_until_idle(worker := world.worker())
    if killed:
        world.log.expel(worker.services.source)
        worker = world.worker()
    world.send(*events_sent[10:], *events_sent[:10])
    run_until_idle(worker)
    # Which events are held out goes by their offsets: another model's events stand where the repeats do.
    filler = list(events(20, model="user-1"))
    once.send(*events_sent[:20], *filler[:10], *events_sent[20:], *filler[10:])
    run_until_idle(once.worker())
    assert read(worker, "events_total", model="shop", kind="triplet", outcome="repeated") == 20
    assert letters(world) == []
    checkpoint, twin = world.store.peek("shop"), once.store.peek("shop")
    assert (checkpoint.state, checkpoint.next, checkpoint.version) == (twin.state, 50, twin.version)
    counted = {"home": checkpoint.progress["tally"]["home"], "until": 50, "repeated": 20}
    stretch = {"home": counted["home"], "since": 0, "until": 50, "refused": "", "closed": False}
    assert checkpoint.progress == {
        **twin.progress,
        "tally": {**twin.progress["tally"], **counted},
        "stretches": [stretch],
    }


def test_an_event_that_was_refused_is_learned_when_it_comes_again(tmp_path):
    world = World(tmp_path)
    event = decode(identified(1)[0])
    world.send(encode(replace(event, query="unknown")), encode(event), encode(event))
    run_until_idle(world.worker())
    (letter,) = letters(world)
    assert (letter.reason, letter.offset) == ("unknown_item", 0)
    assert world.store.peek("shop").version == 1


def test_a_replay_passes_over_the_same_repeats(tmp_path):
    world = World(tmp_path)
    events_sent = identified(20)
    world.send(*events_sent, *events_sent[:10])
    run_until_idle(world.worker())
    spec = Specs(world.configuration, {"items": world.catalogue}).of("shop")
    model = ReplayedModel("shop", spec.fresh(), spec, Placement.first("crc32", 1))
    model.learn(world.log.read(world.log.partitions[0], 0, 100))
    assert model.learner.to_bytes() == world.store.peek("shop").state
    fitting = ReplayedModel("shop", spec.fresh(), spec, Placement.first("crc32", 1))
    located = fitting.locate(world.log.read(world.log.partitions[0], 0, 100))
    assert sum(len(part.events.records) for part in located) == 20


def test_the_interface_describes_the_id_of_every_kind_of_event():
    schemas = openapi()["components"]["schemas"]
    for kind in KINDS:
        text, _ = schemas[kind.__name__]["properties"]["id"]["anyOf"]
        assert (text["type"], text["minLength"], text["maxLength"]) == ("string", 1, 128)
        assert "id" not in schemas[kind.__name__]["required"]
