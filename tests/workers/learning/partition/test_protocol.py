"""The numbered steps of the protocol, one by one: what holds after a crash right after each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omdml import comparisons
from omdml.errors import FeedbackError, GapError, SourceError
from omdml.feedback import Ranking, encode
from omdml.streams.files.source import FileSink, FileSource
from omdml.streams.memory_log import MemorySource
from omdml.streams.protocols.log import CommitResult
from omdml.workers.configuration.config import WorkerConfig
from omdml.workers.events.decoding import Batch, Refusal
from omdml.workers.learning.partition.watermark import Mark
from omdml.workers.learning.worker import LearnerWorker
from tests.support.servers.listeners import Bystander
from tests.support.worlds import (
    NEVER,
    World,
    catalogue,
    damage_newest,
    events,
    kill,
    learned_directly,
    letters,
    living_on,
    mark,
    paced,
    refuse,
    run_until_idle,
)


def members(world, first=0):
    """A source that is given this partition of two, and one that sits on the other."""
    source, sitting = MemorySource(world.log), MemorySource(world.log)
    world.log.group("omdml").members += (source, sitting) if first == 0 else (sitting, source)
    sitting.subscribe(Bystander())
    sitting.poll(1, 0.0)
    return source, sitting


def test_what_is_saved_is_live_before_its_successor_learns_another_event(tmp_path):
    world = World(tmp_path)
    worker = paced(world.worker(), publish=NEVER)
    world.send(*events(20))
    run_until_idle(worker)
    kill(world, worker)
    assert (mark(world), world.store.current("shop").version) == (20, 20)
    run_until_idle(world.worker())
    assert world.store.current("shop").version == 20


def test_an_event_that_became_a_letter_is_not_learned_in_a_replay(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    with monkeypatch.context() as away:
        away.setattr(world.store, "move_mark", refuse)
        away.setattr(comparisons, "MAX_COMPARISONS", 3)
        many = Ranking(model="shop", query="i0", relevant=("i1", "i2"), irrelevant=("i3", "i4"))
        world.send(*events(10), encode(many))
        run_until_idle(worker)
        kill(world, worker)
    assert world.store.claim("shop").checkpoint.next == 11
    assert [letter.reason for letter in letters(world)] == ["too_many"]
    run_until_idle(world.worker())
    assert mark(world) == 11
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 10).to_bytes()


def test_a_partition_that_goes_to_another_member_is_saved_first(tmp_path):
    world = World(tmp_path, partitions=2)
    last = world.log.partitions[1]
    worker = paced(world.worker(), save=NEVER)
    name = living_on(world, last)
    world.send(*events(20, model=name), key=name)
    for _ in range(3):
        worker.step()
    assert mark(world, 1) is None
    joining = MemorySource(world.log)
    joining.subscribe(Bystander())
    joining.poll(1, 0.0)
    worker.step()
    assert list(worker.partitions) == [world.log.partitions[0]]
    assert mark(world, 1) == 20
    # No client can commit inside a rebalance.
    assert last not in world.log.group("omdml").committed
    assert world.store.claim(name).checkpoint.version == 20


def test_the_last_save_of_a_replaced_owner_is_kept_and_stops_nobody(tmp_path, monkeypatch):
    world = World(tmp_path)
    first = paced(world.worker())
    world.send(*events(10))
    run_until_idle(first)
    paced(first, save=NEVER)
    world.send(*events(10))
    run_until_idle(first)
    world.send(*events(10))
    kill(world, first)
    start, owned = Mark.start, first.partitions[world.log.partitions[0]]

    def then_the_first_saves(self, *asked):
        begin = start(self, *asked)
        owned.saving.save(commit=False)
        return begin

    monkeypatch.setattr(Mark, "start", then_the_first_saves)
    second = paced(world.worker(), save=NEVER)
    second.step()
    second.stop()
    # This raises if the worker did not save.
    second.run()
    assert mark(world) == 30
    assert world.store.claim("shop").checkpoint.version == 30


def test_what_was_polled_and_not_taken_is_left_to_the_next_owner(tmp_path, monkeypatch):
    world = World(tmp_path, partitions=2)
    last = world.log.partitions[1]
    worker = world.worker()
    first, second = living_on(world, last), living_on(world, last, skip=1)
    world.send(*list(events(20, model=first))[:10], key=first)
    run_until_idle(worker)
    world.send(*list(events(20, model=first))[10:], key=first)
    world.send(*events(5, model=second), key=second)
    with monkeypatch.context() as away:
        # Nobody can claim the second model: nothing of this poll is taken.
        away.setattr(world.store, "claim", refuse)
        worker.step()
    joining = MemorySource(world.log)
    joining.subscribe(Bystander())
    joining.poll(1, 0.0)
    worker.services.source.poll(1, 0.0)
    assert last not in worker.partitions
    assert mark(world, 1) == 10
    kill(world, worker)
    world.log.expel(joining)
    run_until_idle(world.worker())
    assert [world.store.claim(name).checkpoint.version for name in (first, second)] == [20, 5]


def test_events_polled_before_a_worker_starts_over_are_learned_once(tmp_path, monkeypatch):
    world = World(tmp_path, partitions=2)
    home = world.log.home("shop")
    (other,) = set(world.log.partitions) - {home}
    source, sitting = members(world, first=world.log.partitions.index(other))
    worker = paced(world.worker(source=source), save=NEVER)
    name = living_on(world, other)
    sent = list(events(40, model=name))
    world.send(*sent[:30], key=name)
    run_until_idle(worker)
    assert list(worker.partitions) == [other]

    publish = world.store.publish

    def outrun(*arguments, **options):
        monkeypatch.setattr(world.store, "publish", publish)
        # Another worker comes between our claim and our publication.
        world.store.claim("shop")
        return publish(*arguments, **options)

    monkeypatch.setattr(world.store, "publish", outrun)
    world.send(*sent[30:], key=name)
    world.log.expel(sitting)
    # This step gets the other partition, publishes version 0 there, and is refused.
    worker.step()
    assert worker._owned.polled
    run_until_idle(paced(worker))
    assert world.store.claim(name).checkpoint.version == 40


@pytest.mark.parametrize("damaged", [False, True])
def test_falling_back_to_an_older_checkpoint_passes_no_event_of_another_model(tmp_path, damaged):
    world = World(tmp_path)
    shop, users = list(events(40)), {name: list(events(20, model=name)) for name in ("user-1", "user-2")}
    for batch in ([*shop[:20], *users["user-1"], *shop[20:25], *users["user-2"], *shop[25:30]], shop[30:35]):
        world.send(*batch)
        worker = world.worker()
        run_until_idle(worker)
        kill(world, worker)
    world.log.group("omdml").committed[world.log.partitions[0]] = 20
    # Another server took over, without the last saves.
    for name in users:
        world.store.delete(name)
    if damaged:
        damage_newest(world, "shop")
    world.send(*shop[35:])
    run_until_idle(world.worker())
    versions = {name: world.store.claim(name).checkpoint.version for name in ("shop", *users)}
    assert versions == {"shop": 40, "user-1": 20, "user-2": 20}


def test_what_is_polled_while_nobody_can_tell_who_is_a_member_is_polled_again(tmp_path, monkeypatch):
    world = World(tmp_path, partitions=2)
    home, other = world.log.partitions
    source, sitting = members(world)
    worker = world.worker(source=source)
    first, second = living_on(world, home), living_on(world, other)
    world.send(*events(10, model=first), key=first)
    run_until_idle(worker)
    # Another worker believes that it owns the model.
    world.store.claim(first)
    world.send(*events(10, seed=1, model=first), key=first)
    with monkeypatch.context() as rebalance:
        rebalance.setattr(source, "commit", lambda offsets: CommitResult.UNKNOWN)
        run_until_idle(worker)
        world.send(*events(5, model=second), key=second)
        world.log.expel(sitting)
        run_until_idle(worker)
        assert mark(world, 1) is None
    run_until_idle(worker)
    assert [world.store.claim(name).checkpoint.version for name in (first, second)] == [20, 5]


def test_a_new_generation_is_not_published_at_a_version_below_what_is_live(tmp_path):
    world = World(tmp_path)
    worker = paced(world.worker(), save=NEVER)
    world.send(*events(20))
    run_until_idle(worker)
    assert (mark(world), world.store.current("shop").version) == (None, 20)
    kill(world, worker)
    world.catalogue = catalogue(tmp_path / "other", seed=1)
    world.send(*events(5, seed=1))
    run_until_idle(world.worker())
    assert [line["version"] for line in world.store.history("shop")] == [0, 20, 25]
    assert world.store.load("shop")[1].generation == world.catalogue.generation


def test_a_log_that_lost_its_end_is_learned_on_once_the_gap_is_accepted(tmp_path):
    world, folder = World(tmp_path), tmp_path / "log"
    sink = FileSink(folder)
    for payload in events(20):
        sink.send(payload, key="shop")
    sink.close()
    services = replace(world.worker().services, source=FileSource(folder), accept_gap=True)
    worker = LearnerWorker(services, WorkerConfig())
    run_until_idle(worker)
    (folder / "00000001.jsonl").write_bytes(b"")
    run_until_idle(worker, turns=5)
    sink = FileSink(folder)
    for payload in events(5, seed=1):
        sink.send(payload, key="shop")
    sink.close()
    run_until_idle(worker)
    assert world.store.load("shop")[1].version == 25


def test_letters_that_had_to_wait_are_written_once_and_kept_once(tmp_path):
    # Given refused events while the dead letters take nothing
    world = World(tmp_path)
    worker = world.worker()
    run_until_idle(worker, turns=2)
    add = worker.services.letters.add

    def full(*_):
        raise SourceError("letters/: no room")

    worker.services.letters.add = full
    world.send(*(b'{"bad":%d}' % number for number in range(5)), *events(10))
    run_until_idle(worker, turns=20)
    # If they take letters again, I expect one of each event, and the others learned once.
    worker.services.letters.add = add
    run_until_idle(worker)
    assert [letter.offset for letter in letters(world)] == [0, 1, 2, 3, 4]
    assert worker.services.metrics.intake.letters.labels("invalid")._value.get() == 5
    assert world.store.peek("shop").state == learned_directly(world, 10).to_bytes()


def test_a_worker_stopped_in_doubt_leaves_all_events_to_its_successor(tmp_path, monkeypatch):
    # Given a worker that is fenced for a model of one partition, and cannot tell whether it still is a member
    world = World(tmp_path, partitions=2)
    other, home = world.log.partitions
    source = MemorySource(world.log)
    worker = world.worker(source=source)
    first, second = living_on(world, home), living_on(world, other)
    world.send(*events(10, model=first), key=first)
    run_until_idle(worker)
    world.store.claim(first)
    world.send(*events(10, seed=1, model=first), key=first)
    with monkeypatch.context() as rebalance:
        rebalance.setattr(source, "commit", lambda offsets: CommitResult.UNKNOWN)
        run_until_idle(worker, 3)
        world.send(*events(5, model=second), key=second)
        run_until_idle(worker, 3)
    # When it is stopped just as that can be told again
    worker.stop()
    worker.run()
    # Then its successor learns what came meanwhile, in the other partition too.
    run_until_idle(world.worker())
    assert [world.store.peek(name).version for name in (first, second)] == [20, 5]


def test_a_letter_alone_moves_its_model_like_a_learned_event(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    world.send(*events(10))
    run_until_idle(worker)
    with monkeypatch.context() as away:
        away.setattr(world.store, "move_mark", refuse)
        away.setattr(comparisons, "MAX_COMPARISONS", 3)
        many = Ranking(model="shop", query="i0", relevant=("i1", "i2"), irrelevant=("i3", "i4"))
        world.send(encode(many))
        run_until_idle(worker)
        kill(world, worker)
    run_until_idle(world.worker())
    assert (world.store.peek("shop").version, world.store.peek("shop").next, mark(world)) == (10, 11, 11)
    assert [letter.reason for letter in letters(world)] == ["too_many"]


def test_a_position_stays_before_the_earliest_refused_event_in_any_order(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    world.send(*events(10))
    run_until_idle(worker)
    (partition,) = worker.partitions.values()
    model = partition.models.loaded["shop"]
    world.send(b"earlier", b"later")
    records = world.log.read(partition.partition, 10, 2)
    unsorted = [
        Refusal.of(record, FeedbackError("no", reason="malformed"), "shop", "triplet") for record in records[::-1]
    ]
    partition.taking.take_model(model, Batch(), unsorted)
    assert (model.unsaved_from, model.next) == (10, 12)


def test_after_an_accepted_cut_the_log_is_read_on_from_the_cut(tmp_path, monkeypatch):
    world = World(tmp_path)
    source = MemorySource(world.log)
    worker = world.worker(source=source, accept_gap=True)
    world.send(*events(20))
    run_until_idle(worker)
    cut = GapError("cut", partition=world.log.partitions[0], position=20, available=(0, 25), resume=15, cut=True)
    world.send(*events(5, seed=1))
    gaps, poll = iter([cut]), source.poll

    def cut_once(*arguments):
        for error in gaps:
            raise error
        return poll(*arguments)

    monkeypatch.setattr(source, "poll", cut_once)
    run_until_idle(worker)
    assert (world.store.peek("shop").version, world.store.peek("shop").next) == (30, 25)


def test_a_store_that_cannot_keep_up_slows_the_poll_and_not_the_memory(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    worker.schedule.config = WorkerConfig(max_poll_records=50)
    world.send(*events(500))
    with monkeypatch.context() as away:
        away.setattr(world.store, "claim", refuse)
        run_until_idle(worker, 20)
        (position, end), *_ = worker.services.source.progress().values()
        assert (position, end) == (50, 500)
    run_until_idle(worker)
    assert world.store.peek("shop").version == 500
