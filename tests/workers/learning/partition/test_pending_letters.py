"""Dead letters that the sink has not acknowledged yet: no mark and no commit passes their events."""

from __future__ import annotations

from omdml.errors import SourceError
from tests.support.worlds import World, events, learned_directly, letters, run_until_idle


def test_dead_letters_that_cannot_be_written_wait_and_hold_the_mark_back(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    sink = worker.services.letters._sink

    def full(*_, **__):
        raise SourceError("letters: disk full")

    with monkeypatch.context() as patch:
        patch.setattr(sink, "send", full)
        unknown = b'{"type":"triplet","model":"shop","query":"i0","relevant":"x","irrelevant":"y"}'
        world.send(*events(10), b"{nonsense", unknown)
        run_until_idle(worker)
        assert world.store.marks(world.log.partitions).get(world.log.partitions[0], 0) == 0
    run_until_idle(worker)
    assert {letter.reason for letter in letters(world)} == {"not_json", "unknown_item"}
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 10).to_bytes()


def test_letters_whose_flush_failed_are_sent_again(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    sink, sent = worker.services.letters._sink, []

    def failing(*_):
        raise SourceError("1 of 1 failed")

    with monkeypatch.context() as patch:
        patch.setattr(sink, "send", lambda line, key=None, headers=(): sent.append(line))
        patch.setattr(sink, "flush", failing)
        world.send(b"{nonsense")
        run_until_idle(worker)
        assert sent
        assert letters(world) == []
    run_until_idle(worker)
    assert [letter.reason for letter in letters(world)] == ["not_json"]


def test_letters_are_flushed_and_closed_at_the_end_and_failures_are_reported(tmp_path, monkeypatch, capsys):
    for refused in (False, True):
        worker = World(tmp_path / str(refused)).worker()
        closed = []

        def close(closed=closed, refused=refused):
            closed.append(True)
            if refused:
                raise SourceError("letters: disk full")

        monkeypatch.setattr(worker.services.letters._sink, "close", close)
        worker.stop()
        worker.run()
        assert closed == [True]
    assert "letters_not_closed" in capsys.readouterr().out
