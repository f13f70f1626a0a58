"""What `omdml feed` says of what it sent."""

from __future__ import annotations

import itertools
import json

import pytest

from omdml.feedback import encode
from streams.memory import MemorySink
from tests.support.worlds import World, feedback
from workers.configuration.specs import Specs
from workers.events.validation import send_events


def test_kinds_are_counted_by_their_names_on_the_wire_in_the_plural(tmp_path):
    models = {name: {"learner": name} for name in ("lomdml", "qwise")}
    world = World(tmp_path, models=models)
    events = itertools.chain(feedback("triplet", 2, model="lomdml"), feedback("quadruplet", 1, model="qwise"))
    specs = Specs(world.configuration, {"items": world.catalogue})
    assert send_events(map(encode, events), specs, MemorySink(world.log)).kinds == "1 quadruplet, 2 triplets"
    assert send_events([b"", b"{"], specs, None).kinds == "nothing"


@pytest.mark.parametrize("event", [{"model": "user-" + "x" * 300}, {"at": -1e308}])
def test_what_no_worker_would_take_is_refused_at_the_door(tmp_path, event):
    world = World(tmp_path)
    line = json.dumps(
        {"type": "triplet", "model": "shop", "query": "i0", "relevant": "i1", "irrelevant": "i2", **event}
    )
    fed = send_events([line.encode()], Specs(world.configuration, {"items": world.catalogue}), None)
    assert [refused.error.reason for refused in fed.refused] == ["invalid"]
