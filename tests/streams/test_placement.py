"""Where models live: arithmetic, its record in the store, and what operators do when partitions were added."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omdml.errors import ConfigurationError, CorruptError, GapError, StoreError, StoreLost, StoreRefused
from omdml.streams.placement import Placement, PlacementStep
from omdml.streams.protocols.store import ModelPosition
from omdml.streams.stores.memory import MemoryStore
from omdml.streams.topic_extents import Member
from omdml.workers.learning.log_placement import added_partitions
from omdml.workers.operate import topics
from tests.support.learning.restored_stores import kept_checkpoints, put_checkpoints
from tests.support.pauses import _no_waiting  # noqa: F401
from tests.support.worlds import (
    World,
    events,
    extents,
    kill,
    letters,
    living_on,
    mark,
    other_than,
    rehomed,
    run_until_idle,
    stop,
)

COUNTS = st.lists(st.sampled_from([1, 2, 3]), max_size=3)


@st.composite
def placements(draw):
    """A placement that was rehomed a few times."""
    count = draw(st.integers(1, 6))
    placement = Placement.first(draw(st.sampled_from(["murmur2", "crc32"])), count)
    ends = dict.fromkeys(range(count), 0)
    for factor in draw(COUNTS):
        ends = {number: end + draw(st.integers(0, 9)) for number, end in ends.items()}
        placement = placement.grown(placement.count * factor, ends)
        ends |= dict.fromkeys(range(len(ends), placement.count), 0)
    return placement


@given(placements(), st.text(max_size=9))
def test_every_offset_of_the_log_belongs_to_a_model_on_one_partition_at_a_time(placement, model):
    home = placement.home(model)
    assert 0 <= home < placement.count
    assert placement.belongs(model, home, placement.since(home))
    # From the last rehome on a model is on its home and on no other partition.
    assert [
        number for number in range(placement.count) if placement.belongs(model, number, placement.since(number) + 99)
    ] == [home]


@given(placements(), st.text(max_size=9))
def test_a_model_moves_only_to_partitions_that_nobody_had_read(placement, model):
    *_, last = placement.steps
    before = Placement(placement.partitioner, placement.steps[:-1]) if len(placement.steps) > 1 else placement
    if placement.home(model) != before.home(model):
        assert placement.home(model) >= before.count
        assert last.since.get(placement.home(model), 0) == 0
        assert placement.left(model, before.home(model)) is not None


@given(placements())
def test_a_placement_comes_back_as_it_was_written(placement):
    assert Placement.decode(placement.encode(), "here") == placement


def test_a_placement_of_a_newer_format_is_refused_by_its_number():
    newer = Placement("murmur2", (PlacementStep(4),), format=9)
    with pytest.raises(StoreError, match=r"placement: written by a newer omdml \(format 9, this one reads up to"):
        Placement.decode(newer.encode(), "dir:state")
    with pytest.raises(StoreError, match=r"cannot be read .*restore the store from a backup"):
        Placement.decode(b'{"steps":3}', "dir:state")


def test_keyless_events_are_letters_at_once_and_claim_nothing(tmp_path):
    world = World(tmp_path, partitions=4)
    wrong = living_on(world, other_than(world, "user-1"))
    world.send(*events(5, model="user-1"), key=wrong)
    worker = world.worker()
    run_until_idle(worker)
    assert [letter.reason for letter in letters(world)] == ["wrong_partition"] * 5
    assert "user-1" not in world.store.models()
    (message,) = {letter.error for letter in letters(world)}
    home = world.log.home("user-1").number
    assert f"belong on partition {home} (crc32 of the model's name, modulo 4)" in message


def test_an_event_that_cannot_be_learned_anywhere_says_so_on_any_partition(tmp_path):
    world = World(tmp_path, partitions=2)
    for partition in world.log.partitions:
        world.send(*events(1, model="stranger"), key=living_on(world, partition))
    run_until_idle(world.worker())
    assert [letter.reason for letter in letters(world)] == ["unknown_model"] * 2


def test_another_partitioner_than_the_recorded_one_stops_the_worker(tmp_path):
    world = World(tmp_path, partitions=2)
    stop(world.worker())
    worker = world.worker()
    worker.services.source.partitioner = "murmur2"
    with pytest.raises(ConfigurationError, match=r"log.partitioner is 'murmur2', but the models .* 'crc32' puts them"):
        run_until_idle(worker)


def grown(folder, partitions=2):
    """A world whose models learned 10 events each, and then 5 more that lie on partitions added since."""
    world = World(folder, partitions=partitions)
    names = [f"user-{number}" for number in range(8)]
    for name in names:
        world.send(*events(10, model=name), key=name)
    stop(world.worker())
    world.log.add_partitions(partitions)
    for name in names:
        world.send(*events(5, 1, model=name), key=name)
    return world, names


def versions(world, names):
    """How much each of these models learned, in this order."""
    return [world.store.peek(name).version for name in names]


def test_added_partitions_are_left_unread_and_said_until_a_rehome(tmp_path):
    world, names = grown(tmp_path)
    worker = world.worker()
    run_until_idle(worker)
    assert worker.services.metrics.registry.get_sample_value("omdml_worker_unread_partitions") == 2
    stay = [name for name in names if world.log.home(name).number < 2]
    assert versions(world, names) == [15 if name in stay else 10 for name in names]
    lines = topics.survey(lambda: extents(world), world.store, list)
    assert [bool(line.wrong) for line in lines] == [False, False, True, True]
    assert all("nobody reads it" in line.wrong and "omdml topics rehome" in line.wrong for line in lines[2:])
    worker.stop()
    worker.run()
    # When an operator asks for it, all models move at once, and everything is learned.
    assert rehomed(world) == (2, 4)
    run_until_idle(world.worker())
    assert versions(world, names) == [15] * 8
    assert letters(world) == []
    homes = world.store.positions(names)
    assert {name: homes[name].home for name in names} == {name: world.log.home(name) for name in names}


@pytest.mark.parametrize(("partitions", "command"), [(8, "omdml topics rehome"), (6, "omdml topics status")])
def test_a_worker_does_not_name_a_rehome_that_would_be_refused(partitions, command):
    assert command in added_partitions(4, partitions - 4)
    assert ("rehome" in added_partitions(4, partitions - 4)) == (partitions == 8)


def test_events_that_come_by_the_old_partition_after_a_rehome_are_letters(tmp_path):
    world, names = grown(tmp_path)
    stop(world.worker())
    rehomed(world)
    moved = next(name for name in names if world.log.home(name).number >= 2)
    old = world.log.partitions[world.log.home(moved).number - 2]
    world.send(*events(3, 2, model=moved), key=living_on(world, old))
    run_until_idle(world.worker())
    assert [letter.reason for letter in letters(world)] == ["wrong_partition"] * 3
    assert versions(world, names) == [15] * 8


def test_events_from_before_a_rehome_are_no_letters_when_they_are_read_again(tmp_path):
    world, names = grown(tmp_path)
    stop(world.worker())
    rehomed(world)
    stop(world.worker())
    # A group whose offsets were lost or set back begins earlier than it would have to.
    world.log.group("omdml").committed.update(dict.fromkeys(world.log.partitions[:2], 0))
    run_until_idle(world.worker())
    assert letters(world) == []
    assert versions(world, names) == [15] * 8


def test_a_rehome_says_what_is_not_learned_or_committed_yet(tmp_path):
    world, _ = grown(tmp_path)
    with pytest.raises(ConfigurationError, match=r"\d+ events are not learned and saved yet.*Start a worker"):
        rehomed(world)
    stop(world.worker())
    committed = world.log.group("omdml").committed
    committed[world.log.partitions[1]] -= 1
    with pytest.raises(ConfigurationError, match=r"partition 1: learned up to \d+, but committed up to"):
        rehomed(world)
    assert world.store.placement(world.log.topic_id).count == 2


def test_a_number_of_partitions_that_is_no_multiple_is_refused_with_the_next(tmp_path):
    world, _ = grown(tmp_path)
    stop(world.worker())
    world.log.add_partitions(1)
    with pytest.raises(ConfigurationError, match=r"5 is not a multiple of 2, .*omdml topics grow --partitions 6"):
        rehomed(world)
    assert rehomed(world, 4) == (2, 4)
    assert rehomed(world, 4) == (4, 4)


def test_a_store_from_before_a_rehome_is_rehomed_again_and_learns_the_same(tmp_path):
    world, names = grown(tmp_path)
    stop(world.worker())
    earlier = copy.deepcopy(world.store.database.groups)
    rehomed(world)
    stop(world.worker())
    before = {name: world.store.peek(name).state for name in names}
    world.store.database.groups.update(earlier)
    stop(world.worker())
    assert rehomed(world) == (2, 4)
    run_until_idle(world.worker())
    assert {name: world.store.peek(name).state for name in names} == before
    assert letters(world) == []


def test_a_rehome_under_a_living_worker_stops_it_before_it_saves(tmp_path):
    world, names = grown(tmp_path)
    stop(world.worker())
    worker = world.worker()
    worker.step()
    rehomed(world)
    stays = next(name for name in names if world.log.home(name).number < 2)
    world.send(*events(3, 2, model=stays), key=stays)
    with pytest.raises(StoreRefused, match=r"the record of where its models live changed .*start it again"):
        run_until_idle(worker)
    kill(world, worker)
    run_until_idle(world.worker())
    assert versions(world, [stays]) == [18]


def test_a_moved_model_whose_last_checkpoint_is_damaged_waits_and_says_why(tmp_path):
    world, names = grown(tmp_path)
    stop(world.worker())
    rehomed(world)
    moved = next(name for name in names if world.log.home(name).number >= 2)
    kept = kept_checkpoints(world.store, moved)
    saved_before, data = kept[0]
    saved_last = saved_before._replace(digest="of what was saved after the move")
    put_checkpoints(world.store, moved, [(saved_last, data[:-9]), *kept], saved_last)
    worker = world.worker()
    run_until_idle(worker)
    assert versions(world, [name for name in names if name != moved]) == [15] * 7
    assert worker.services.metrics.registry.get_sample_value("omdml_worker_models_waiting", {"cause": "moved"}) == 1
    with pytest.raises(CorruptError, match=r"the newer ones are damaged, .*omdml replay --model"):
        worker.partitions[world.log.home(moved)].claiming.claim(moved)


def test_a_rewind_walks_the_steps_again_and_learns_the_same_bytes(tmp_path):
    world, names = grown(tmp_path)
    stop(world.worker())
    rehomed(world)
    stop(world.worker())
    before = {name: world.store.peek(name).state for name in names}
    assert topics.rewind(extents(world), world.store, "crc32", [], None) == sorted(names)
    assert world.store.placement(world.log.topic_id).count == 2
    stop(world.worker())
    rehomed(world)
    run_until_idle(world.worker())
    assert {name: world.store.peek(name).state for name in names} == before


def test_a_rewind_says_plainly_that_one_offset_is_possible(tmp_path):
    world = World(tmp_path)
    world.send(*events(10))
    with pytest.raises(ConfigurationError, match="can be learned again only from offset 0, but not from 5"):
        topics.rewind(extents(world), world.store, "crc32", [], 5)


def test_a_rewind_names_the_workers_that_joined_meanwhile(tmp_path):
    world = World(tmp_path)
    world.send(*events(10))
    stop(world.worker())
    joined = [Member("worker-1", "host", [0])]
    with pytest.raises(StoreError, match=r"a worker started in the meantime \(worker-1 at host\)"):
        topics.rewind(extents(world), world.store, "crc32", [], None, members=lambda: joined)


def test_a_new_store_is_told_how_many_partitions_the_topic_began_with(tmp_path):
    world, names = grown(tmp_path)
    stop(world.worker())
    rehomed(world)
    stop(world.worker())
    before = {name: world.store.peek(name).state for name in names}
    world.store = MemoryStore()
    topics.rewind(extents(world), world.store, "crc32", [], None, count=2)
    stop(world.worker())
    rehomed(world)
    run_until_idle(world.worker())
    assert {name: world.store.peek(name).state for name in names} == before
    assert letters(world) == []
    with pytest.raises(ConfigurationError, match="has 4 partitions, it cannot have begun with 5"):
        topics.rewind(extents(world), world.store, "crc32", [], None, count=5)


def test_a_store_that_was_emptied_under_a_worker_is_not_taken_for_a_rehome(tmp_path):
    world, _ = grown(tmp_path)
    worker = world.worker()
    run_until_idle(worker)
    world.store.database.groups.clear()
    world.send(*events(5, model="user-1"), key="user-1")
    with pytest.raises(StoreLost):
        run_until_idle(worker)


def test_a_rewind_to_after_the_rehome_keeps_it():
    placement = Placement.first("crc32", 2).grown(4, {0: 10, 1: 20})
    assert placement.rewound({0: 10, 1: 20, 2: 0, 3: 0}, "crc32") == placement
    assert placement.rewound({0: 10, 1: 19, 2: 0, 3: 0}, "murmur2") == Placement.first("murmur2", 2)


def test_a_checkpoint_ahead_of_the_log_stops_the_worker_unless_accepted(tmp_path):
    world = World(tmp_path)
    world.send(*events(10))
    stop(world.worker())
    epoch, checkpoint, _ = world.store.claim("shop")
    ahead = type(checkpoint)(
        **{name: getattr(checkpoint, name) for name in checkpoint.__struct_fields__} | {"next": 500}
    )
    world.store.save(ahead, epoch)
    world.send(*events(5, 1))
    first = world.worker()
    with pytest.raises(GapError, match="has learned partition 0 up to offset 500, but the log ends at 15"):
        run_until_idle(first)
    kill(world, first)
    worker = world.worker(accept_gap=True)
    run_until_idle(worker)
    assert world.store.positions(["shop"]) == {"shop": ModelPosition(world.log.partitions[0], 15)}
    world.send(*events(5, 2))
    run_until_idle(worker)
    assert (world.store.peek("shop").version, mark(world)) == (15, 20)


def test_a_rehome_while_senders_go_on_makes_letters_of_what_waits(tmp_path):
    # Given events on the old partitions that came after the workers were stopped, as from senders that cannot be
    world, names = grown(tmp_path)
    stop(world.worker())
    old = {name: Placement.first("crc32", 2).home(name) for name in names}
    for name in names:
        world.send(*events(3, 2, model=name), key=living_on(world, world.log.partitions[old[name]]))
    with pytest.raises(ConfigurationError, match=r"Stop the senders.* If you cannot .*run it with --senders-go-on"):
        rehomed(world)
    # When the operator confirms, each is learned or becomes a letter, although senders go on meanwhile.
    assert rehomed(world, senders_go_on=True) == (2, 4)
    for name in names:
        world.send(*events(2, 3, model=name), key=living_on(world, world.log.partitions[old[name]]))
    run_until_idle(world.worker())
    moved = [name for name in names if world.log.home(name).number >= 2]
    assert moved
    assert versions(world, names) == [15 if name in moved else 20 for name in names]
    assert [letter.reason for letter in letters(world)] == ["wrong_partition"] * 5 * len(moved)


def test_a_rehome_while_senders_go_on_is_refused_after_a_killed_worker(tmp_path):
    world, _ = grown(tmp_path)
    committed = world.log.group("omdml").committed
    committed[world.log.partitions[1]] -= 1
    with pytest.raises(
        ConfigurationError, match=r"but committed up to \d+\. Start the workers, .*, stop them with SIGTERM"
    ):
        rehomed(world, senders_go_on=True)
    assert world.store.placement(world.log.topic_id).count == 2
