"""In whatever order things happen, every model ends with the bytes of a run that nothing interrupted."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from omdml import LOMDML
from tests.support.deep import deep_after
from tests.support.learning.audits import audited
from tests.support.worlds import World
from tests.workers.learning.random_lives.life import NAMES, PARTS, Life


@pytest.mark.parametrize("seed", deep_after(4, range(20)))
def test_every_event_is_learned_once_and_in_order_or_is_one_letter(tmp_path, seed):
    random.seed(seed)
    life = Life(World(tmp_path), seed)
    for _ in range(140):
        life.happen()
    life.end()
    oracle = life.oracle()
    checkpoints = [life.world.store.peek(name).to_bytes() for name in NAMES]
    (graves,) = life.world.graves.partitions
    letters = [record.value for record in life.world.graves.read(graves, 0, 10_000)]
    numbers = [str(number).encode() for number in range(life.sent)]
    assert oracle.findings(checkpoints, letters, numbers) == []
    assert oracle.unread == []
    assert audited(life.world)[1].wrong == {}
    for name, taken in oracle.taken.items():
        alone = LOMDML(dims=dict(life.world.catalogue.dims), rank=2)
        alone.start(life.world.catalogue.features)
        payloads = [json.loads(event.value) for event in taken]
        alone.learn_many(
            np.array([[int(payload[part][1:]) for part in PARTS] for payload in payloads]),
            life.world.catalogue.features,
        )
        assert life.world.store.peek(name).state == alone.to_bytes()
