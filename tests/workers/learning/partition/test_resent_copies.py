"""Events that have letters, but were learned when a worker took them again: copies of them are passed over."""

from __future__ import annotations

from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.feedback import Triplet, encode
from omdml.streams.catalogues.building.build import add_items
from omdml.streams.letters import Letter
from omdml.streams.memory_log import MemorySource
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.resent_events import RESENT_UNREAD, headers_again, position_of_copy
from omdml.workers.events.decoding import sort_out
from omdml.workers.events.learned_stretches import Stretch, Stretches
from omdml.workers.operate.published_replay import publish
from omdml.workers.operate.replay import ReplayedModel, nothing_timed, read_as_placed
from tests.support.deep import examples
from tests.support.learning.audits import audited
from tests.support.learning.owned_models import SECRET, begun, resumed
from tests.support.learning.owned_models import specs as specs
from tests.support.learning.restored_stores import kept_checkpoints, put_checkpoints
from tests.support.learning.worker_metrics import read
from tests.support.worlds import World, damage, events, items, kill, letters, mark, paced, rehomed, run_until_idle, stop

HOME, SMALL = Partition("topic", 0), 3
MODELS = {"shop": {"learner": "lomdml", "rank": 3}, "user-1": {"learner": "lomdml", "rank": 2}}
LATE = Triplet(model="shop", query="i0", relevant="late", irrelevant="i3")


def resend(world, *chosen):
    """Put into the log what ``omdml letters resend`` does."""
    for letter in chosen:
        world.log.send(letter.payload, letter.model, headers_again(letter, world.store.secret()))


def with_model(world, name):
    """From now on this model is configured too, like ``user-1``."""
    models = world.configuration.models
    models = {**models, name: models["user-1"]}
    world.configuration = msgspec.structs.replace(world.configuration, models=models)


def without_model(world, name):
    """From now on this model is not configured."""
    models = {model: config for model, config in world.configuration.models.items() if model != name}
    world.configuration = msgspec.structs.replace(world.configuration, models=models)


def with_late_item(world):
    """From now on the catalogue has the item that was missing."""
    (catalogue,) = world.configuration.catalogues.values()
    add_items(catalogue.path, {name: rows[:1] for name, rows in items(3)[0].items()}, ids=["late"])


def learned(world, name="shop"):
    """How many events of a model were learned, and how many passed over as repeats."""
    tally = world.store.peek(name).progress["tally"]
    return tally["learned"], tally["repeated"]


def test_a_model_configured_before_its_letters_were_final_learns_no_copy(tmp_path):
    # Given a model that waits and holds the mark, and letters about a model that is not configured
    world = World(tmp_path, models=MODELS)
    world.send(*events(5))
    run_until_idle(worker := world.worker())
    kill(world, worker)
    damage(world, "shop")
    world.send(*events(1, 1), *events(4, 2, model="user-9"))
    stop(world.worker())
    assert [letter.reason for letter in letters(world)] == ["unknown_model"] * 4
    assert mark(world) == 5
    # When it is configured, so that its events are taken again and learned, and the letters are sent again,
    with_model(world, "user-9")
    run_until_idle(worker := world.worker(), 100)
    resend(world, *letters(world))
    stop(worker)
    # I expect that none is learned twice, and that the audit knows it.
    assert world.store.peek("user-9").version == 4
    assert learned(world, "user-9") == (4, 4)
    assert read(worker, "events_total", model="user-9", kind="triplet", outcome="repeated") == 4
    assert "user-9" not in audited(world)[1].wrong


@pytest.fixture
def taken_again(tmp_path):
    """A world with a letter about an unknown item, whose event was learned all the same.

    The worker was killed before it saved anything. Its successor took all events again, and knew the item.
    """
    world = World(tmp_path)
    world.send(*events(5), encode(LATE))
    run_until_idle(worker := paced(world.worker(), save=1e9), 10)
    assert [letter.reason for letter in letters(world)] == ["unknown_item"]
    kill(world, worker)
    with_late_item(world)
    stop(world.worker())
    assert learned(world) == (6, 0)
    return world


def test_an_item_added_before_its_letter_was_final_teaches_once(taken_again):
    assert audited(taken_again)[1] == ({}, [])
    resend(taken_again, *letters(taken_again))
    stop(taken_again.worker())
    assert learned(taken_again) == (6, 1)
    assert audited(taken_again)[1] == ({}, [])


def test_a_replay_that_learns_a_letter_passes_over_its_copy(tmp_path):
    world = World(tmp_path)
    world.send(*events(5), encode(LATE))
    stop(world.worker())
    with_late_item(world)
    resend(world, *letters(world))
    stop(world.worker())
    assert learned(world) == (6, 0)
    spec, placement = world.worker().services.specs.of("shop"), world.store.placement(world.log.topic_id)
    replay = ReplayedModel("shop", spec.fresh(), spec, placement, world.store.secret())
    for records in read_as_placed(lambda: MemorySource(world.log, group="replay"), placement, False):
        replay.learn(records)
    assert (replay.progress.tally.learned, replay.progress.tally.repeated) == (6, 1)


def test_a_store_brought_back_from_before_a_letter_passes_over_its_copy(tmp_path):
    world = World(tmp_path)
    world.send(*events(5))
    stop(world.worker())
    older, begin = kept_checkpoints(world.store, "shop"), mark(world)
    world.send(encode(LATE))
    stop(world.worker())
    with_late_item(world)
    resend(world, *letters(world))
    stop(world.worker())
    assert learned(world) == (6, 0)
    put_checkpoints(world.store, "shop", older)
    assert world.store.move_mark(world.log.partitions[0], mark(world), begin)
    stop(world.worker())
    assert learned(world) == (6, 1)
    assert audited(world)[1] == ({}, [])


def test_letters_of_a_model_that_was_taken_out_and_put_back_are_learned(tmp_path):
    world = World(tmp_path, models=MODELS)
    world.send(*events(5, model="user-1"))
    stop(world.worker())
    with_the_model = world.configuration
    without_model(world, "user-1")
    world.send(*events(3, 1, model="user-1"))
    stop(world.worker())
    world.configuration = with_the_model
    refused = letters(world)
    assert [letter.reason for letter in refused] == ["unknown_model"] * 3
    # Whether the copies or new events come first, I expect each to be learned.
    resend(world, refused[0])
    world.send(*events(2, 2, model="user-1"))
    resend(world, *refused[1:])
    stop(world.worker())
    assert learned(world, "user-1") == (10, 0)
    assert audited(world)[1] == ({}, [])


def test_a_refused_event_alone_is_known_to_its_model_after_a_restart(tmp_path):
    world = World(tmp_path)
    world.send(*events(5))
    stop(world.worker())
    # Given an invalid event, one of a kind that the model does not learn from, and no other event of the model
    world.send(encode(Triplet(model="shop", query="i0", relevant="i1", irrelevant="i2")).replace(b"triplet", b"pair"))
    quadruplet = b'{"type":"quadruplet","model":"shop","near":["i1","i2"],"far":["i3","i4"]}'
    world.send(quadruplet)
    stop(world.worker())
    world.send(*events(2, 1))
    stop(world.worker())
    (stretch,) = msgspec.convert(world.store.peek("shop").progress["stretches"], list[Stretch])
    stretches = Stretches([stretch])
    partition = world.log.partitions[0]
    assert [stretches.learned(partition, offset) for offset in (0, 6, 7)] == [True, False, True]


def test_strays_learned_at_their_old_home_are_not_learned_again_after_a_rehome(tmp_path):
    # Given a model that moved, a stray that came by its old home later, and a store from before the move
    world = World(tmp_path, partitions=1)
    name = next(name for name in map("user-{}".format, range(9)) if Placement.first("crc32", 2).home(name) == 1)
    world.send(*events(5, model=name), key=name)
    stop(world.worker())
    models = kept_checkpoints(world.store, name)
    old, before = world.log.partitions[0], world.store.placement(world.log.topic_id)
    world.log.add_partitions(1)
    rehomed(world)
    stray = next(iter(events(1, 1, model=name)))
    world.log.send(stray, next(key for key in map("user-{}".format, range(9)) if world.log.home(key) == old))
    stop(world.worker())
    (letter,) = letters(world)
    assert letter.reason == "wrong_partition"
    # When the store is brought back, learns the stray where it lies, and is rehomed again,
    put_checkpoints(world.store, name, models)
    assert world.store.place(world.log.topic_id, world.store.placement(world.log.topic_id), before)
    assert world.store.move_mark(old, mark(world), 5)
    stop(world.worker())
    assert learned(world, name) == (6, 0)
    rehomed(world)
    resend(world, letter)
    stop(world.worker())
    # I expect its copy to be passed over.
    assert (world.store.peek(name).version, learned(world, name)) == (6, (0, 1))


def test_a_published_replay_of_a_model_that_moved_adds_up(tmp_path):
    world = World(tmp_path, partitions=1)
    name = next(name for name in map("user-{}".format, range(9)) if Placement.first("crc32", 2).home(name) == 1)
    world.send(*events(10, model=name), key=name)
    stop(world.worker())
    world.log.add_partitions(1)
    rehomed(world)
    world.send(*events(5, 1, model=name), key=name)
    stop(worker := world.worker())
    spec, placement = worker.services.specs.of(name), world.store.placement(world.log.topic_id)
    model = ReplayedModel(name, spec.fresh(), spec, placement, world.store.secret())
    for records in read_as_placed(lambda: MemorySource(world.log, group="replay"), placement, False):
        model.learn(records)
    publish(model, world.store, worker.services.letters, "test", replace=True)
    assert world.store.peek(name).version == 15
    assert learned(world, name) == (5, 0)
    assert audited(world)[1].wrong == {}


def test_a_letter_that_could_not_be_read_is_named_by_another_header():
    letter = Letter(reason="malformed", error="", partition=HOME, offset=3, payload=b"{}")
    for model, position in ((None, None), ("shop", (HOME, 3))):
        sent = msgspec.structs.replace(letter, model=model, headers=((RESENT_UNREAD, b"x"),))
        headers = tuple(headers_again(sent, SECRET))
        assert len(headers) == 1
        assert position_of_copy(Record(HOME, 9, b"{}", headers=headers), SECRET) == position


def test_a_header_that_a_sender_made_up_keeps_no_letter_from_being_learned(tmp_path):
    # Given a refused event, and sound events whose sender passes them off as copies of it
    world = World(tmp_path, models=MODELS)
    world.send(*events(5), encode(LATE))
    stop(world.worker())
    (letter,) = letters(world)
    (sound,) = events(1, 7)
    ((name, value),) = headers_again(letter, b"no secret of this store")
    for forged in (value, value.split()[0], value.split()[0] + b" "):
        world.log.send(sound, "shop", [(name, forged)])
    stop(world.worker())
    # If the letter is sent again, I expect its event to be learned, and the forged copies as events of their own.
    with_late_item(world)
    resend(world, letter)
    stop(world.worker())
    assert learned(world) == (9, 0)


def literally(sequence):
    """The rule, event by event: the offsets of those that are learned or held out."""
    refused, copied_since, first_known, taken = [], set(), 0, []
    for offset, (sound, copied) in enumerate(sequence):
        if copied is not None and first_known <= copied < offset and (copied not in refused or copied in copied_since):
            continue
        if sound:
            taken.append(offset)
            copied_since |= {copied} & {*refused}
            continue
        refused.append(offset)
        if len(refused) > SMALL:
            first_known = refused.pop(0) + 1
    return taken


EVENT = st.tuples(st.booleans(), st.none() | st.integers(0, 12))


@settings(max_examples=examples(80), deadline=None)
@given(sequence=st.lists(EVENT, min_size=1, max_size=14), cuts=st.sets(st.integers(1, 13)))
def test_which_copies_are_learned_follows_the_literal_rule_in_any_batches(specs, sequence, cuts):
    records = []
    for offset, (sound, copied) in enumerate(sequence):
        event = Triplet(model="shop", query="i1", relevant="i2" if sound else "nobody", irrelevant="i3")
        letter = Letter(reason="x", error="", partition=HOME, offset=copied or 0, payload=b"", model="shop")
        headers = () if copied is None else tuple(headers_again(letter, SECRET))
        records.append(Record(HOME, offset, encode(event), headers=headers))
    ends = sorted({*(cut for cut in cuts if cut < len(sequence)), len(sequence)})
    with patch("omdml.workers.events.learned_stretches.WINDOW", SMALL):
        model, learned_offsets = begun(specs), set()
        for begin, end in zip([0, *ends], ends, strict=False):
            batches, _ = sort_out(records[begin:end], specs.accepts)
            refused = {refusal.record.offset for refusal in model.take(batches["shop"], nothing_timed)}
            learned_offsets |= set(range(begin, end)) - refused - model.repeated
            model = resumed(specs, model)
    assert sorted(learned_offsets) == literally(sequence)
