"""What ``omdml feed`` sends and refuses, and where to go on if it breaks off."""

from __future__ import annotations

import itertools
import json

import pytest

from omdml.errors import FeedbackError, SourceError
from omdml.feedback import encode
from omdml.streams.memory_log import MemorySink
from omdml.workers.configuration.specs import Specs
from omdml.workers.events.validation import send_events
from tests.support.worlds import World, feedback


def test_kinds_are_counted_by_their_names_on_the_wire_in_the_plural(tmp_path):
    models = {name: {"learner": name} for name in ("lomdml", "qwise")}
    world = World(tmp_path, models=models)
    events = itertools.chain(feedback("triplet", 2, model="lomdml"), feedback("quadruplet", 1, model="qwise"))
    lines = enumerate(map(encode, events), start=1)
    specs = Specs(world.configuration, {"items": world.catalogue})
    assert send_events(lines, specs, MemorySink(world.log)).kinds == "1 quadruplet, 2 triplets"
    assert send_events([(1, b""), (2, b"{")], specs, None).kinds == "nothing"


@pytest.mark.parametrize("event", [{"model": "user-" + "x" * 300}, {"at": -1e308}])
def test_feed_refuses_events_that_no_worker_would_take(tmp_path, event):
    world = World(tmp_path)
    line = json.dumps(
        {"type": "triplet", "model": "shop", "query": "i0", "relevant": "i1", "irrelevant": "i2", **event}
    )
    fed = send_events([(1, line.encode())], Specs(world.configuration, {"items": world.catalogue}), None)
    assert [refused.error.reason for refused in fed.refused] == ["invalid"]


class BrokenOff(MemorySink):
    """A log whose disk is full after so many events."""

    def __init__(self, log, room):
        super().__init__(log)
        self.room = room

    def send(self, value, key=None, headers=()):
        if not self.room:
            raise SourceError("the disk is full")
        self.room -= 1
        super().send(value, key, headers)


def test_an_input_that_breaks_off_half_way_says_where_to_go_on(tmp_path):
    world = World(tmp_path)
    specs = Specs(world.configuration, {"items": world.catalogue})
    lines = list(enumerate([b"", *map(encode, feedback("triplet", 2500))], start=1))
    with pytest.raises(SourceError, match=r"is full; clicks was sent up to line 2001 .* up to line 2301: go on"):
        send_events(lines, specs, BrokenOff(world.log, 2299), "clicks")

    def endless():
        yield from lines[:11]
        raise FeedbackError("line 12 has no end")

    with pytest.raises(FeedbackError, match=r"no end; clicks was sent up to line 0 .* up to line 11: go on at line 1 "):
        send_events(endless(), specs, MemorySink(world.log), "clicks")
    # If nothing was sent, the error does not say where to go on.
    with pytest.raises(SourceError, match=r"^the disk is full$"):
        send_events(lines, specs, BrokenOff(world.log, 0), "clicks")
