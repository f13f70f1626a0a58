"""Logs that lost events: cut by an unclean election, truncated, shortened by retention."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from omdml.errors import GapError
from omdml.streams.files.source import FileSink, FileSource
from omdml.streams.kafka.reading import gap
from omdml.streams.kafka.reading.batches import Unreadable
from omdml.streams.memory_log import MemorySource
from omdml.streams.stores.checkpoints import none_left
from omdml.workers.configuration.config import WorkerConfig
from omdml.workers.learning.worker import LearnerWorker
from tests.support.learning.restored_stores import put_checkpoints
from tests.support.worlds import (
    World,
    checking_ends,
    damage_newest,
    events,
    kill,
    letters,
    mark,
    refuse,
    run_until_idle,
    unreadable,
)


def cut(world, end):
    """Cut everything from ``end`` on off the log; returns a source that reports positions behind its end."""
    (partition,) = world.log.partitions
    with world.log.changed:
        del world.log._records[partition][end:]
    return checking_ends(world, partition)


def written_on(world, source, end, *more):
    """Cut a log, write on, and have a source report the cut at its next poll, as a client that had read on does."""
    (partition,) = world.log.partitions
    with world.log.changed:
        del world.log._records[partition][end:]
    world.send(*more)
    tell_once(source, lambda position: gap.cut("feedback", partition, position, (0, world.log.end(partition)), end))


def tell_once(source, error):
    """Have the next poll of a source raise an error made from its position."""
    unreported, poll = [error], source.poll

    def poll_with_errors(*arguments):
        if unreported:
            source._rebalance()
            raise unreported.pop()(*source._positions.values())
        return poll(*arguments)

    source.poll = poll_with_errors


def test_what_comes_behind_a_cut_is_learned_in_pieces_of_any_size(tmp_path):
    world = World(tmp_path)
    world.send(*events(20))
    first = world.worker()
    run_until_idle(first)
    kill(world, first)
    worker = world.worker(source=cut(world, 10), accept_gap=True)
    run_until_idle(worker, 5)
    for seed in range(1, 5):
        world.send(*events(5, seed=seed))
        run_until_idle(worker, 8)
    assert (world.store.peek("shop").version, mark(world)) == (40, 30)


def test_a_model_that_is_idle_at_an_accepted_cut_learns_on_after_a_restart(tmp_path):
    world = World(tmp_path)
    first = world.worker()
    world.send(*events(20))
    run_until_idle(first)
    kill(world, first)
    worker = world.worker(source=cut(world, 10), accept_gap=True)
    run_until_idle(worker, 5)
    worker.stop()
    worker.run()
    world.send(*events(5, seed=1))
    run_until_idle(world.worker())
    assert (world.store.peek("shop").version, mark(world)) == (25, 15)


@pytest.mark.parametrize(
    "gap_error",
    [
        lambda partition: gap.out_of_range("feedback", partition, 0, (10, 20)),
        lambda partition: gap.unreadable("feedback", partition, None, (0, 20), Unreadable("damaged", 5)),
    ],
    ids=["retention", "a damaged batch, no position"],
)
def test_after_a_gap_that_is_no_cut_nothing_is_learned_twice(tmp_path, monkeypatch, gap_error):
    # Given a model that is further than its partition's mark
    world = World(tmp_path)
    first = world.worker()
    world.send(*events(20))
    with monkeypatch.context() as outage:
        outage.setattr(world.store, "move_mark", refuse)
        run_until_idle(first)
        kill(world, first)
    # When retention passes the mark, or a batch that comes again is damaged, and the gap is accepted
    source = MemorySource(world.log)
    tell_once(source, lambda _: gap_error(world.log.partitions[0]))
    worker = world.worker(source=source, accept_gap=True)
    run_until_idle(worker)
    # Then events behind the gap that were learned are not learned again.
    assert (world.store.peek("shop").version, mark(world)) == (20, 20)


@pytest.mark.parametrize("begin", [10, 20, 21])
def test_only_events_above_the_mark_make_a_gap_if_retention_deletes_them(tmp_path, begin):
    # Given twenty events that are in checkpoints, of which five are committed, and three more
    world = World(tmp_path)
    (partition,) = world.log.partitions
    world.send(*events(20))
    first = world.worker()
    run_until_idle(first)
    kill(world, first)
    world.log.group("omdml").committed[partition] = 5
    world.send(*events(3, seed=1))
    # When retention deletes events below the mark, the next worker goes on. If it deletes one above, the worker stops.
    world.log.trim(partition, begin)
    if begin > mark(world):
        with pytest.raises(GapError, match="the position is 20, but it holds 21 to 23"):
            run_until_idle(world.worker())
    else:
        run_until_idle(world.worker())
        assert world.log.group("omdml").committed[partition] == 23
        assert (world.store.peek("shop").version, mark(world)) == (23, 23)


def killing(*_):
    """Raise what ends a process in the middle of a step."""
    raise SystemExit


@pytest.mark.parametrize("killed", [False, True])
def test_a_worker_killed_right_after_accepting_a_cut_loses_nothing(tmp_path, monkeypatch, killed):
    world = World(tmp_path)
    worker = world.worker(accept_gap=True)
    world.send(*events(20))
    run_until_idle(worker)
    written_on(world, worker.services.source, 10, *events(30, seed=1))
    worker.step()
    if killed:
        monkeypatch.setattr(worker.services.source, "seek", killing)
        with pytest.raises(SystemExit):
            worker.step()
        assert mark(world) == 10
        kill(world, worker)
        worker = world.worker()
    run_until_idle(worker)
    assert (world.store.peek("shop").version, mark(world)) == (50, 40)


def test_at_an_accepted_cut_a_model_that_cannot_be_read_stops_no_other(tmp_path):
    # Given two models, one of them with nothing left to read, and a cut below what both have learned
    world, sound = unreadable(tmp_path, "user-1", "user-2")
    worker = world.worker(accept_gap=True)
    written_on(world, worker.services.source, 15, *events(30, seed=1, model="user-2"), *events(5, 2, model="user-1"))
    run_until_idle(worker)
    assert (world.store.peek("user-2").version, mark(world)) == (40, 15)
    # If it is restored, I expect it to learn what was written on.
    put_checkpoints(world.store, "user-1", sound)
    run_until_idle(worker, 50)
    assert (world.store.peek("user-1").version, mark(world)) == (15, 50)


@pytest.mark.parametrize("restored_after", ["before the log reaches its old end", "once it is longer"])
def test_a_model_that_could_not_be_read_at_an_accepted_cut_skips_nothing_later(tmp_path, restored_after):
    # Given a model that has learned up to offset 20, and cannot be read as a cut at 15 is accepted
    world, sound = unreadable(tmp_path, "user-1", "user-2")
    worker = world.worker(accept_gap=True)
    count = 3 if restored_after.startswith("before") else 30
    written_on(world, worker.services.source, 15, *events(count, 2, model="user-1"))
    run_until_idle(worker)
    assert mark(world) == 15
    # If it is restored, I expect it to learn all that was written on.
    put_checkpoints(world.store, "user-1", sound)
    run_until_idle(worker)
    assert (world.store.peek("user-1").version, mark(world)) == (10 + count, 15 + count)


@pytest.mark.parametrize(("end", "learned"), [(25, 55), (15, 50)])
def test_a_model_that_falls_back_at_a_cut_learns_what_it_lacks_below(tmp_path, end, learned):
    world = World(tmp_path)
    worker = world.worker()
    for seed in range(3):
        world.send(*events(10, seed=seed))
        run_until_idle(worker)
    kill(world, worker)
    damage_newest(world, "shop")
    worker = world.worker(accept_gap=True)
    written_on(world, worker.services.source, end, *events(30, seed=7))
    run_until_idle(worker)
    # The older checkpoint has learned 20, and of these the ones that were cut off stay learned.
    assert world.store.peek("shop").version == learned


def test_a_store_that_is_away_while_a_cut_is_accepted_is_waited_for(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker(accept_gap=True)
    world.send(*events(20))
    run_until_idle(worker)
    written_on(world, worker.services.source, 10, *events(30, seed=1))
    with monkeypatch.context() as outage:
        outage.setattr(world.store, "positions", refuse)
        run_until_idle(worker, 5)
    run_until_idle(worker)
    assert (world.store.peek("shop").version, mark(world)) == (50, 40)


def test_an_accepted_cut_of_a_lost_partition_is_left_to_its_next_owner(tmp_path):
    world = World(tmp_path)
    worker = world.worker(accept_gap=True)
    world.send(*events(20))
    run_until_idle(worker)
    written_on(world, worker.services.source, 10, *events(30, seed=1))
    worker.step()
    (partition,) = worker.partitions
    worker._owned.lost([partition])
    run_until_idle(worker, 3)
    assert not worker._owned.from_beginning
    # The next owner's own client reports the cut, too.
    kill(world, worker)
    source = MemorySource(world.log)
    tell_once(source, lambda position: gap.cut("feedback", partition, position, (0, 40), 10))
    run_until_idle(world.worker(source=source, accept_gap=True))
    assert (world.store.peek("shop").version, mark(world)) == (50, 40)


def test_a_waiting_model_learns_what_is_written_over_what_it_waited_for(tmp_path, monkeypatch):
    # Given a model of which nothing can be read, whose events wait from 10 on
    world, broken = World(tmp_path), [none_left("user-1", "here")]
    claim, source = world.store.claim, MemorySource(world.log)

    def claimed(name):
        if name == "user-1" and broken:
            raise broken[0]
        return claim(name)

    monkeypatch.setattr(world.store, "claim", claimed)
    worker = world.worker(source=source, accept_gap=True)
    world.send(*events(10), *events(10, model="user-1"))
    run_until_idle(worker)
    # If the log is cut below that and written on, and the model is mended, I expect it to learn all that is new.
    written_on(world, source, 5, *events(3, 1, model="user-1"), *events(12, 2))
    run_until_idle(worker)
    broken.clear()
    run_until_idle(worker)
    assert (world.store.peek("user-1").version, world.store.peek("shop").version) == (3, 22)


def on_files(world, folder, accept_gap=False):
    """A worker that reads a log in files."""
    services = replace(world.worker().services, source=FileSource(folder), accept_gap=accept_gap)
    return LearnerWorker(services, WorkerConfig())


def write(folder, *payloads):
    """Append events to a log in files."""
    sink = FileSink(folder)
    for payload in payloads:
        sink.send(payload, key="shop")
    sink.close()


def test_a_truncated_log_stops_the_worker_until_the_gap_is_accepted(tmp_path):
    world, log = World(tmp_path), tmp_path / "log"
    write(log, *events(50))
    worker = on_files(world, log)
    run_until_idle(worker)
    worker.services.source.close()
    (log / "00000001.jsonl").write_bytes(b"")
    refused = on_files(world, log)
    with pytest.raises(GapError, match="omdml worker --accept-gap"):
        run_until_idle(refused)
    refused.services.source.close()
    worker = on_files(world, log, accept_gap=True)
    run_until_idle(worker)
    write(log, *events(5, seed=1))
    run_until_idle(worker)
    assert world.store.load("shop")[1].version == 55


def test_a_log_made_again_is_refused_until_that_is_accepted(tmp_path):
    world, log = World(tmp_path), tmp_path / "log"
    write(log, *events(50))
    worker = on_files(world, log)
    run_until_idle(worker)
    worker.services.source.close()
    log.rename(tmp_path / "old")
    write(log, *events(20, seed=1))
    refused = on_files(world, log)
    with pytest.raises(GapError, match="made again"):
        run_until_idle(refused)
    refused.services.source.close()
    assert letters(world) == []
    with capture_logs() as lines:
        run_until_idle(on_files(world, log, accept_gap=True))
    assert world.store.load("shop")[1].version == 70
    (accepted,) = [line for line in lines if line["event"] == "gap_accepted" and "model" in line]
    assert (accepted["model"], "was learned from log" in accepted["reason"]) == ("shop", True)
