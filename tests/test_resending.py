"""Sending the events of dead letters again."""

from __future__ import annotations

import pytest

from omdml.errors import SourceError
from omdml.feedback import Triplet, encode
from streams.letters import Letter
from tests.worlds import World, events
from workers.config import FileLog
from workers.resending import judge
from workers.wiring import open_sender


def test_only_one_at_a_time_sends_letters_of_files_again(tmp_path):
    (tmp_path / "feedback").mkdir()
    log = FileLog(path=str(tmp_path / "feedback"), letters=str(tmp_path / "letters"))
    sender = open_sender(log)
    with pytest.raises(SourceError, match="another omdml letters resend is at work"):
        open_sender(log)
    sender.close()
    open_sender(log).close()


def test_an_event_that_its_worker_may_yet_learn_is_not_sent_again(tmp_path):
    # Given an event of an item that was not there, and a worker killed before it saved anything
    world = World(tmp_path)
    world.send(*events(5), encode(Triplet(model="shop", query="i0", relevant="i1", irrelevant="i2")))
    (partition,) = world.log.partitions
    letter = Letter(
        reason="unknown_item",
        error="i1",
        partition=partition,
        offset=5,
        payload=world.log.read(partition, 5, 1)[0].value,
    )
    specs = world.worker().services.specs
    # While its partition's mark is not behind it, I expect it to be left alone, and to be sent from then on.
    for mark, sent in ((5, False), (6, True)):
        verdict = judge(letter, specs, {partition: mark})
        assert (verdict.event is not None) is sent
        assert sent or "try again" in verdict.why
