"""A model in parts is learned on every partition, and what goes live is the sum of its parts' checkpoints."""

from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest
import structlog

from omdml.errors import Fenced
from omdml.feedback import Triplet, encode
from omdml.streams.catalogues.building.build import add_items
from omdml.streams.memory_log import MemoryLog
from omdml.streams.part_names import part_name
from omdml.streams.protocols.store import Written
from omdml.streams.resent_events import headers_again
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.configuration.specs import Specs
from omdml.workers.model.parts.vector import Vector, record_of
from tests.support.deep import deep_after
from tests.support.learning.parts import HOT, drained, expected, hot_world, published, same_sums, scatter, whole
from tests.support.learning.restored_stores import kept_checkpoints, put_checkpoints
from tests.support.worlds import (
    checking_ends,
    damage,
    events,
    items,
    kill,
    letters,
    paced,
    refuse,
    rehomed,
    run_until_idle,
)


class Watched(MemoryStore):
    """A store that remembers which vectors were published, in order."""

    def __init__(self) -> None:
        super().__init__(secret=b"7" * 32)
        self.vectors: list[Vector] = []

    def publish(self, snapshot, epoch, withheld="", assumed=None):
        answer = super().publish(snapshot, epoch, withheld, assumed)
        if snapshot.model == "hot" and snapshot.vector and answer is Written.STORED:
            self.vectors.append(Vector.of_text(snapshot.vector))
        return answer


def test_events_are_learned_where_they_lie_and_the_sum_of_all_parts_goes_live(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 500)
    drained(world, world.worker())
    snapshot, vector = published(world)
    ends = {partition.number: world.log.end(partition) for partition in world.log.partitions}
    assert vector.positions == ends
    assert min(ends.values()) > 0
    assert snapshot.version == 500 == sum(part.version for part in record_of(world.store.peek("hot")).vector.parts)
    assert letters(world) == []
    assert same_sums(whole(world), expected(world, ends))
    assert snapshot.metric.to_tensors()[0].keys() == whole(world).metric.to_tensors()[0].keys()


def test_other_models_are_learned_at_home_as_before(tmp_path):
    world = hot_world(tmp_path, models={**HOT, "shop": {"learner": "lomdml", "rank": 3}})
    scatter(world, 100)
    world.send(*events(50))
    world.log.send(
        next(events(1)), next(f"k{i}" for i in range(99) if world.log.home(f"k{i}") != world.log.home("shop"))
    )
    drained(world, world.worker())
    assert world.store.peek("shop").version == 50
    assert [letter.reason for letter in letters(world)] == ["wrong_partition"]


@pytest.mark.parametrize("seed", deep_after(3, range(6)))
def test_kills_lose_and_double_nothing_and_vectors_never_go_back(tmp_path, seed):
    world, chance = hot_world(tmp_path), random.Random(seed)
    world.store = Watched()
    workers = [paced(world.worker(), save=0.01), paced(world.worker(), save=0.01)]
    for wave in range(12):
        scatter(world, 40, seed=100 * seed + wave)
        for _ in range(chance.randrange(1, 9)):
            chance.choice(workers).step()
        victim = chance.randrange(2)
        kill(world, workers[victim])
        workers[victim] = paced(world.worker(), save=0.01)
    drained(world, *workers, turns=120)
    # The owner of the model's home may have stopped before the other worker had saved.
    drained(world, world.worker(), turns=40)
    snapshot, vector = published(world)
    assert snapshot.version == 12 * 40
    assert same_sums(whole(world), expected(world, vector.positions))
    order = world.store.vectors
    assert len(order) > 5
    assert all(later.reaches(earlier) for earlier, later in pairwise(order))


def test_a_part_that_fell_back_is_not_published_until_it_caught_up(tmp_path):
    world = hot_world(tmp_path)
    world.store = Watched()
    scatter(world, 200)
    drained(world, world.worker())
    before = published(world)[1]
    name = part_name("hot", 2)
    owner, newest = world.store.owner(name), kept_checkpoints(world.store, name)[0]
    checkpoint = world.store.peek(name)
    earlier = msgspec.structs.replace(checkpoint, next=checkpoint.next - 20, version=checkpoint.version - 20)
    world.store.save(earlier, owner, back=True)
    scatter(world, 3, seed=9)
    worker = world.worker()
    for _ in range(3):
        worker.schedule.merging.turn(worker.partitions)
        worker.step()
    assert all(vector.reaches(before) for vector in world.store.vectors[-3:])
    put_checkpoints(world.store, name, [newest, *kept_checkpoints(world.store, name)])
    drained(world, worker)
    assert all(later.reaches(earlier) for earlier, later in pairwise(world.store.vectors))


def test_a_part_that_catches_up_slowly_is_logged_once_and_then_once_a_minute(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 200)
    drained(world, world.worker())
    name = part_name("hot", 2)
    saved, worker = world.store.peek(name), world.worker()
    worker.step()
    owner, begin = world.store.owner(name), worker.services.clock()
    with structlog.testing.capture_logs() as lines:
        # Given a part that comes a little nearer with each look, for three minutes
        while (now := worker.services.clock()) < begin + 180:
            behind = msgspec.structs.replace(saved, next=saved.next - 20 + int(now - begin) // 10)
            world.store.save(behind, owner, back=True)
            worker.schedule.merging.turn(worker.partitions)
    names = [line["event"] for line in lines]
    assert names.count("merge_waits") == 3
    assert names.count("parts_claimed") <= 1


def test_an_earlier_owner_can_publish_nothing(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 100)
    first = world.worker()
    run_until_idle(first, 40)
    model = first.schedule.merging._wholes["hot"].model
    before = published(world)
    second = world.worker()
    kill(world, first)
    scatter(world, 50, seed=1)
    run_until_idle(second, 40)
    checkpoint, snapshot = model.checkpoint("test"), model.snapshot()
    assert world.store.save(checkpoint, model.epoch) is Written.FENCED
    assert world.store.publish(snapshot, model.epoch) is Written.FENCED
    assert published(world)[0].version > before[0].version
    with pytest.raises(Fenced):
        first.schedule.merging._check_written(Written.FENCED, "hot", next(iter(first.partitions.values())))


def test_partitions_that_are_added_become_parts(tmp_path):
    world = hot_world(tmp_path, partitions=2)
    scatter(world, 100)
    drained(world, world.worker())
    world.log.add_partitions(2)
    assert rehomed(world) == (2, 4)
    scatter(world, 200, seed=1)
    drained(world, world.worker())
    snapshot, vector = published(world)
    assert sorted(vector.positions) == [0, 1, 2, 3]
    assert snapshot.version == 300
    assert same_sums(whole(world), expected(world, vector.positions))


def test_a_sender_cannot_reach_a_part(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 40)
    home = world.log.home("hot").number
    for number in range(4):
        world.send(*events(3, model=part_name("hot", number)), key=f"k{number}")
    drained(world, world.worker())
    assert published(world)[0].version == 40
    assert sorted({letter.model for letter in letters(world)}) == [part_name("hot", number) for number in range(4)]
    assert world.configuration.match(part_name("hot", home)) is None
    assert Specs(world.configuration, {"items": world.catalogue}).find(part_name("hot", home)) is None


def test_a_letter_that_is_sent_again_is_learned_once_by_its_part(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 20)
    late = encode(Triplet(model="hot", query="i0", relevant="late", irrelevant="i3"))
    partition = next(partition for partition in world.log.partitions if partition != world.log.home("hot"))
    key = next(f"x{i}" for i in range(99) if world.log.home(f"x{i}") == partition)
    world.log.send(late, key)
    drained(world, world.worker())
    (letter,) = letters(world)
    assert (letter.model, letter.partition, letter.reason) == ("hot", partition, "unknown_item")
    (config,) = world.configuration.catalogues.values()
    add_items(config.path, {name: rows[:1] for name, rows in items(3)[0].items()}, ids=["late"])
    for _ in range(2):
        world.log.send(letter.payload, key, headers_again(letter, world.store.secret()))
    away = next(f"x{i}" for i in range(99) if world.log.home(f"x{i}") != partition)
    world.log.send(letter.payload, away, headers_again(letter, world.store.secret()))
    drained(world, world.worker())
    assert published(world)[0].version == 21
    assert [letter.reason for letter in letters(world)] == ["unknown_item", "wrong_partition"]


def test_a_part_that_cannot_be_read_keeps_the_version_and_says_so(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 100)
    drained(world, world.worker())
    before = published(world)[0].version
    sound = damage(world, part_name("hot", 1))
    scatter(world, 40, seed=1)
    worker = world.worker()
    with structlog.testing.capture_logs() as lines:
        run_until_idle(worker, 60)
    assert published(world)[0].version == before
    assert part_name("hot", 1) in {line["model"] for line in lines if line["event"] == "model_waits"}
    put_checkpoints(world.store, part_name("hot", 1), sound)
    drained(world, worker)
    drained(world, world.worker())
    assert published(world)[0].version == 140


def test_no_log_line_says_that_no_model_was_claimed(tmp_path):
    # Given a new part of a whole that cannot be read, so that nothing can be claimed
    world = hot_world(tmp_path)
    scatter(world, 100)
    drained(world, world.worker())
    damage(world, "hot")
    world.store.delete(part_name("hot", 1))
    scatter(world, 40, seed=1)
    with structlog.testing.capture_logs() as lines:
        run_until_idle(world.worker(), 10)
    assert [line["model"] for line in lines if line["event"] == "model_waits"] == [part_name("hot", 1)]
    assert all(line["count"] > 0 for line in lines if line["event"] == "models_claimed")


def test_after_a_cut_nothing_goes_live_until_the_part_has_come_as_far_again(tmp_path):
    world = hot_world(tmp_path)
    world.store = Watched()
    scatter(world, 200)
    drained(world, world.worker())
    before, count = published(world)[1], len(world.store.vectors)
    partition = world.log.partitions[2]
    with world.log.changed:
        del world.log._records[partition][-20:]
    worker = world.worker(source=checking_ends(world, partition), accept_gap=True)
    run_until_idle(worker, 5)
    scatter(world, 30, seed=1)
    assert world.log.end(partition) < before.positions[2]
    drained(world, worker)
    assert len(world.store.vectors) == count
    assert world.store.peek(part_name("hot", 2)).next == world.log.end(partition)
    scatter(world, 200, seed=2)
    drained(world, world.worker())
    assert all(later.reaches(earlier) for earlier, later in pairwise(world.store.vectors))
    assert published(world)[0].version == 430


@pytest.mark.parametrize("partitions", [4, 2], ids=["as many partitions", "fewer"])
def test_in_a_log_that_was_made_again_parts_go_live_at_once_with_what_they_knew(tmp_path, partitions):
    world = hot_world(tmp_path)
    scatter(world, 400)
    drained(world, world.worker())
    old = published(world)[1]
    # Given a log that was made again, of which two parts have learned something
    world.log = MemoryLog(partitions, topic_id="made again")
    scatter(world, 2, seed=1)
    first = world.worker(accept_gap=True)
    run_until_idle(first, 20)
    assert published(world)[0].version == 402
    # When others learn, too, and the next owner of the whole is killed between its checkpoint and its snapshot
    scatter(world, 20, seed=2)
    drained(world, first)
    world.store.publish, sound = refuse, world.store.publish
    scatter(world, 3, seed=3)
    run_until_idle(second := world.worker(accept_gap=True), 20)
    kill(world, second)
    world.store.publish = sound
    drained(world, world.worker(accept_gap=True))
    # Then all of it goes live.
    snapshot, vector = published(world)
    assert snapshot.version == 425
    assert vector.positions == dict.fromkeys(old.positions, 0) | {
        partition.number: world.log.end(partition) for partition in world.log.partitions
    }
