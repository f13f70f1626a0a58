"""A model in parts is learned on every partition, and what goes live is the sum of its parts' checkpoints."""

from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest

from omdml import DCA
from omdml.errors import ConfigurationError, Fenced, FormatError, StoreError
from omdml.feedback import Triplet, encode
from omdml.streams.catalogues.building.build import add_items
from omdml.streams.kafka.reading import gap
from omdml.streams.letters import headers_again
from omdml.streams.memory_log import MemorySource
from omdml.streams.part_names import part_name
from omdml.streams.protocols.store import Written
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.configuration.specs import Specs
from omdml.workers.doctor.checks.checkpoints import look_at_checkpoints
from omdml.workers.model.claim import claim
from omdml.workers.model.judging.held_out_window import HeldEvent
from omdml.workers.model.judging.hold_out import HoldOut
from omdml.workers.model.parts.merged_model import in_turn, still_judging
from omdml.workers.model.parts.vector import Vector, record_of
from omdml.workers.operate import models, parts, topics
from omdml.workers.operate.replayed_parts import compared, replayed, snapshot_of, start_of
from tests.support.parts import GUARD, HOT, expected, hot_world, same_sums, scatter, with_models
from tests.support.worlds import (
    damage,
    events,
    extents,
    is_held_out,
    items,
    kill,
    letters,
    paced,
    rehomed,
    run_until_idle,
)  # fmt: skip
from tests.workers.operate.test_audit import audited

ORDINARY = {"hot": {**HOT["hot"], "parts": False}}


class Watched(MemoryStore):
    """A store that remembers which vectors were published, in order."""

    def __init__(self) -> None:
        super().__init__(secret=b"7" * 32)
        self.vectors: list[Vector] = []

    def publish(self, snapshot, epoch, held=""):
        answer = super().publish(snapshot, epoch, held)
        if snapshot.model == "hot" and snapshot.vector and answer is Written.STORED:
            self.vectors.append(Vector.of_text(snapshot.vector))
        return answer


def drained(world, *workers, turns=60):
    """Let workers take turns, and end them."""
    for _ in range(turns):
        for worker in workers:
            worker.step()
    for worker in workers:
        worker.stop()
        worker.run()


def published(world):
    """The live snapshot and its vector."""
    _, snapshot = world.store.load("hot")
    return snapshot, Vector.of_text(snapshot.vector)


def whole(world) -> DCA:
    return DCA.from_bytes(world.store.peek("hot").state)


def spec_of(world):
    return Specs(world.configuration, {"items": world.catalogue}).of("hot")


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


@pytest.mark.parametrize("seed", range(6))
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
    # Whoever owns the home may have stopped before the other one saved.
    drained(world, world.worker(), turns=40)
    snapshot, vector = published(world)
    assert snapshot.version == 12 * 40
    assert same_sums(whole(world), expected(world, vector.positions))
    order = world.store.vectors
    assert len(order) > 5
    assert all(later.reaches(earlier) for earlier, later in pairwise(order))


def test_every_published_vector_replays_to_the_same_bytes(tmp_path):
    world = hot_world(tmp_path, guard=GUARD)
    for wave in range(3):
        scatter(world, 90, seed=wave)
        drained(world, world.worker(), turns=30)
    spec, placement = spec_of(world), world.store.placement(world.log.topic_id)
    seen = 0
    for line in world.store.history("hot"):
        _, kept = world.store.load("hot", line["version"])
        if line["what"] != "published" or not kept.vector:
            continue
        vector, start = Vector.of_text(kept.vector), start_of("hot", spec, world.store)
        log = [[record for part in world.log.partitions for record in world.log.read(part, 0, 100_000)]]
        found = replayed("hot", spec, start, placement, world.store.secret(), vector, log)
        again = snapshot_of("hot", spec, found.learner, vector)
        assert again.digest == kept.digest
        assert "same bytes" in compared(world.store, again)
        assert same_sums(found.learner, expected(world, vector.positions, GUARD))
        seen += 1
    assert seen >= 3


def test_a_replay_of_another_vector_says_that_it_differs(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 80)
    drained(world, world.worker())
    spec, placement = spec_of(world), world.store.placement(world.log.topic_id)
    vector = Vector.of_text("0:3,1:2")
    log = [[record for part in world.log.partitions for record in world.log.read(part, 0, 100_000)]]
    found = replayed("hot", spec, start_of("hot", spec, world.store), placement, None, vector, log)
    assert found.learner.version == 5
    assert "not kept" in compared(world.store, snapshot_of("hot", spec, found.learner, vector))
    with pytest.raises(ConfigurationError, match="4 partitions"):
        replayed("hot", spec, start_of("hot", spec, world.store), placement, None, Vector.of_text("7:1"), [])


def test_a_part_that_fell_back_is_not_published_until_it_caught_up(tmp_path):
    world = hot_world(tmp_path)
    world.store = Watched()
    scatter(world, 200)
    drained(world, world.worker())
    before = published(world)[1]
    name = part_name("hot", 2)
    old, (saved, data) = world.store._models[name], world.store._models[name].checkpoints[0]
    checkpoint = world.store.peek(name)
    earlier = msgspec.structs.replace(checkpoint, next=checkpoint.next - 20, version=checkpoint.version - 20)
    world.store.save(earlier, old.owner, back=True)
    scatter(world, 3, seed=9)
    worker = world.worker()
    for _ in range(3):
        worker._merging.turn(worker.partitions)
        worker.step()
    assert all(vector.reaches(before) for vector in world.store.vectors[-3:])
    world.store._models[name].checkpoints.insert(0, (saved, data))
    drained(world, worker)
    assert all(later.reaches(one) for one, later in pairwise(world.store.vectors))


def test_an_earlier_owner_can_publish_nothing(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 100)
    first = world.worker()
    run_until_idle(first, 40)
    model = first._merging._wholes["hot"].model
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
        first._merging._written(Written.FENCED, "hot", next(iter(first.partitions.values())))


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


def test_reset_begins_all_parts_again(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 200)
    drained(world, world.worker())
    before = published(world)[1]
    assert parts.reset(world.store, spec_of(world), "hot", "test") == 4
    assert world.store.current("hot").version == 0
    scatter(world, 60, seed=5)
    drained(world, world.worker())
    snapshot, vector = published(world)
    assert snapshot.version == 60
    assert vector.reaches(before)


def test_a_reset_does_not_delete_a_part_that_another_release_wrote(tmp_path, monkeypatch):
    world = hot_world(tmp_path)
    scatter(world, 40)
    drained(world, world.worker())
    before, claim_of = world.store.peek("hot::part-1"), world.store.claim

    def of_another_release(name):
        if name == "hot::part-1":
            raise FormatError("checkpoint: written by a later release")
        return claim_of(name)

    monkeypatch.setattr(world.store, "claim", of_another_release)
    with pytest.raises(FormatError):
        parts.reset(world.store, spec_of(world), "hot", "test")
    assert world.store.peek("hot::part-1").to_bytes() == before.to_bytes()


def test_nothing_is_merged_while_a_reset_is_interrupted(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 200)
    drained(world, world.worker())

    class Interrupted(Exception):
        pass

    claim, claims = world.store.claim, []

    def broken(name):
        claims.append(name)
        if len(claims) == 4:
            raise Interrupted
        return claim(name)

    world.store.claim = broken
    with pytest.raises(Interrupted):
        parts.reset(world.store, spec_of(world), "hot", "test")
    world.store.claim = claim
    scatter(world, 60, seed=5)
    drained(world, world.worker())
    assert world.store.current("hot").version == 0
    parts.reset(world.store, spec_of(world), "hot", "test")
    scatter(world, 30, seed=6)
    drained(world, world.worker())
    assert published(world)[0].version == 30


def test_delete_removes_all_parts_and_the_next_event_begins_them_again(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 120)
    worker = world.worker()
    run_until_idle(worker, 40)
    parts.delete(world.store, "hot")
    assert world.store.models() == []
    scatter(world, 50, seed=2)
    drained(world, worker)
    drained(world, world.worker())
    assert published(world)[0].version == 50


def test_a_model_with_a_checkpoint_is_refused_until_it_was_copied(tmp_path):
    world = hot_world(tmp_path, models=ORDINARY)
    world.send(*events(70, model="hot"), key="hot")
    drained(world, world.worker())
    with_models(world, HOT)
    with pytest.raises(ConfigurationError, match="learned without parts"):
        drained(world, world.worker())
    # What the message says:
    both = {**ORDINARY, "old": ORDINARY["hot"]}
    with_models(world, both)
    topic, placement = world.log.topic_id, world.store.placement(world.log.topic_id)
    old = Specs(world.configuration, {"items": world.catalogue}).of("old")
    models.copy(world.store, "hot", "old", old, topic, placement, "test")
    world.store.delete("hot")
    with_models(world, {**HOT, "old": ORDINARY["hot"]})
    assert models.copy(world.store, "old", "hot", spec_of(world), topic, placement, "test") == 70
    scatter(world, 100, seed=3)
    drained(world, world.worker())
    assert published(world)[0].version == 170


def test_a_model_that_was_in_parts_is_refused_without_them(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 30)
    drained(world, world.worker())
    with_models(world, ORDINARY)
    with pytest.raises(ConfigurationError, match="was learned in parts"):
        drained(world, world.worker())
    spec = spec_of(world)
    with pytest.raises(ConfigurationError, match="was learned in parts"):
        claim("hot", spec, world.store, "test")


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


def test_a_rewind_learns_all_parts_again(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 150)
    drained(world, world.worker())
    topics.rewind(extents(world), world.store, "crc32", ["hot"], None)
    assert world.store.models() == []
    drained(world, world.worker())
    assert published(world)[0].version == 150


def test_a_letter_that_is_sent_again_is_learned_once_by_its_part(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 20)
    late = encode(Triplet(model="hot", query="i0", relevant="late", irrelevant="i3"))
    partition = next(place for place in world.log.partitions if place != world.log.home("hot"))
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
    assert [one.reason for one in letters(world)] == ["unknown_item", "wrong_partition"]


def test_a_part_that_cannot_be_read_keeps_the_version_and_says_so(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 100)
    drained(world, world.worker())
    before = published(world)[0].version
    sound = damage(world, part_name("hot", 1))
    scatter(world, 40, seed=1)
    worker = world.worker()
    run_until_idle(worker, 60)
    assert published(world)[0].version == before
    world.store._models[part_name("hot", 1)].checkpoints = sound
    drained(world, worker)
    drained(world, world.worker())
    assert published(world)[0].version == 140


def hostile(world, count, seed):
    """Send events that teach the reverse, all of them learned by part 1; those that will be held out are sound."""
    secret, key = world.store.secret(), next(f"y{i}" for i in range(99) if world.log.home(f"y{i}").number == 1)
    for payload in events(count, seed=seed, model="hot"):
        event = msgspec.json.decode(payload)
        if not is_held_out(secret, part_name("hot", 1), 1, world.log.end(world.log.partitions[1]), GUARD.every):
            event["relevant"], event["irrelevant"] = event["irrelevant"], event["relevant"]
        world.log.send(msgspec.json.encode(event), key)


def test_the_guard_judges_by_what_all_parts_hold_out(tmp_path):
    world = hot_world(tmp_path, guard=GUARD)
    scatter(world, 1200)
    drained(world, world.worker(), turns=120)
    good = world.store.current("hot")
    held = [world.store.peek(part_name("hot", number)).progress["hold_out"]["count"] for number in range(4)]
    assert good.version + sum(held) == 1200
    hostile(world, 6000, seed=8)
    drained(world, world.worker(), turns=200)
    assert world.store.current("hot").version < world.store.peek("hot").version
    last = world.store.history("hot")[-1]
    assert last["what"] == "held"
    assert "not as good on" in last["reason"]
    # Part 1 judges by its own events alone no better: what others hold out is most of what judges.
    assert int(last["reason"].split("not as good on ")[1].split()[0]) > 60


def test_what_was_judged_lies_in_the_checkpoint_and_the_next_owner_goes_on_from_it(tmp_path):
    world = hot_world(tmp_path, guard=GUARD)
    scatter(world, 1200)
    drained(world, world.worker(), turns=120)
    hostile(world, 6000, seed=8)
    drained(world, world.worker(), turns=200)
    live, checkpoint = world.store.current("hot"), world.store.peek("hot")
    assert checkpoint.progress["yardstick"]["withheld"]
    drained(world, world.worker(), turns=10)
    assert world.store.current("hot") == live
    assert world.store.peek("hot").progress["yardstick"]["version"] == checkpoint.progress["yardstick"]["version"]


def test_the_windows_of_parts_are_one_whose_newest_events_come_last():
    held = {0: [HeldEvent([[number, 1, 2]]) for number in range(3)], 2: [HeldEvent([[9, 1, 2]])]}
    assert [event.rows[0][0] for event in in_turn(held)] == [0, 1, 2, 9]
    assert still_judging(HoldOut(5, 10, "", held[0]), 9) == held[0][2:]
    assert still_judging(HoldOut(5, 10, "", held[0]), 0) == held[0]
    assert still_judging(HoldOut(5, 10, "", held[0]), 10) == []


def test_a_whole_that_cannot_be_read_waits_and_a_reset_begins_it_again(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 100)
    drained(world, world.worker())
    damage(world, "hot")
    scatter(world, 50, seed=1)
    drained(world, world.worker())
    assert world.store.current("hot").version == 100
    assert world.store.peek(part_name("hot", 1)).version > 0
    assert parts.reset(world.store, spec_of(world), "hot", "test") == 4
    scatter(world, 20, seed=2)
    drained(world, world.worker())
    assert published(world)[0].version == 20


def told_of_the_end(world, partition):
    """A source that tells of a position behind the end of a partition, as a client of Kafka does."""
    source = MemorySource(world.log)
    poll = source.poll

    def told(*arguments):
        position = source._positions.get(partition)
        if position is not None and position > world.log.end(partition):
            raise gap.out_of_range("feedback", partition, position, (0, world.log.end(partition)))
        return poll(*arguments)

    source.poll = told
    return source


def test_after_a_cut_nothing_goes_live_until_the_part_has_come_as_far_again(tmp_path):
    world = hot_world(tmp_path)
    world.store = Watched()
    scatter(world, 200)
    drained(world, world.worker())
    before, count = published(world)[1], len(world.store.vectors)
    partition = world.log.partitions[2]
    with world.log.changed:
        del world.log._records[partition][-20:]
    worker = world.worker(source=told_of_the_end(world, partition), accept_gap=True)
    run_until_idle(worker, 5)
    scatter(world, 30, seed=1)
    assert world.log.end(partition) < before.positions[2]
    drained(world, worker)
    assert len(world.store.vectors) == count
    assert world.store.peek(part_name("hot", 2)).next == world.log.end(partition)
    scatter(world, 200, seed=2)
    drained(world, world.worker())
    assert all(later.reaches(one) for one, later in pairwise(world.store.vectors))
    assert published(world)[0].version == 430


def test_the_audit_finds_every_event_in_its_part(tmp_path):
    world = hot_world(tmp_path, guard=GUARD)
    scatter(world, 200)
    drained(world, world.worker())
    assert audited(world)[1].wrong == {}


def test_reset_of_a_model_that_learned_nothing_is_refused(tmp_path):
    world = hot_world(tmp_path)
    with pytest.raises(StoreError):
        parts.reset(world.store, spec_of(world), "hot", "test")
    with pytest.raises(ConfigurationError, match="omdml models reset hot"):
        parts.require_whole(part_name("hot", 1), "reset")


def test_the_doctor_says_what_to_do_about_a_part_or_a_whole_that_cannot_be_read(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 100)
    drained(world, world.worker())
    specs, names = Specs(world.configuration, {"items": world.catalogue}), world.store.models()
    for broken in (part_name("hot", 1), "hot"):
        damage(world, broken)
        seen = look_at_checkpoints(specs, world.store, names, lambda: extents(world))
        (remark,) = seen.remarks()
        assert "omdml models reset hot" in remark.text
        assert "replay" not in remark.text
    assert seen.sound == 3
