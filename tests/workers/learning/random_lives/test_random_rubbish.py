"""Models move while senders go on, beside events that nobody can learn: audit and oracle find nothing wrong."""

from __future__ import annotations

import random
from typing import ClassVar

import pytest

from omdml.errors import StoreError
from omdml.feedback import Triplet, encode
from tests.support.deep import deep_after
from tests.support.learning.audits import audited
from tests.support.worlds import World, living_on, rehomed
from tests.workers.learning.random_lives.life import NAMES, WEIGHTS, Life


class Rubbish(Life):
    """Operators do not wait for senders, and some of these send what cannot be learned, by any partition."""

    weights: ClassVar = {**WEIGHTS, "rubbish": 4, "rehome": 2, "grow": 1.5}

    def rubbish(self):
        name, partition = self.chance.choice(NAMES), self.chance.choice(self.world.log.partitions)
        payload = self.chance.choice(
            [
                b"",
                b"{nonsense",
                b"\xff\xfe",
                b"[1]",
                b'{"type":"triplet","model":"%s","query":"i1"}' % name.encode(),
                b'{"type":"click","model":"%s"}' % name.encode(),
                encode(Triplet(model=name, query="i1", relevant="nobody", irrelevant="i3")),
                encode(Triplet(model="nobody-7", query="i1", relevant="i2", irrelevant="i3")),
            ]
        )
        key = name if self.chance.random() < 0.7 else living_on(self.world, partition)
        self.world.log.send(payload, key, [("bad", b"")])

    def rehome(self):
        """Rehome as in every life. If it is refused, check that nothing was changed.

        It may be refused here, because a worker whose calls were lost may have saved more than the marks say.
        """
        topic_id, store = self.world.log.topic_id, self.world.store
        before = store.placement(topic_id)
        try:
            super().rehome()
            return
        except StoreError as error:
            refusal = str(error)
        assert "nothing was changed" in refusal
        assert store.placement(topic_id) == before

    def place_on_more(self):
        placement = self.world.store.placement(self.world.log.topic_id)
        if placement and placement.count < len(self.world.log.partitions):
            rehomed(self.world, 2 * placement.count, senders_go_on=True)


@pytest.mark.parametrize("seed", deep_after(4, range(20)))
def test_rubbish_beside_a_rehome_while_senders_go_on_has_one_fate(tmp_path, seed):
    random.seed(seed)
    life = Rubbish(World(tmp_path), seed)
    for _ in range(140):
        life.happen()
    life.end()
    oracle = life.oracle()
    assert oracle.unread == []
    checkpoints = [life.world.store.peek(name).to_bytes() for name in NAMES]
    (graves,) = life.world.graves.partitions
    letters = [record.value for record in life.world.graves.read(graves, 0, 10_000)]
    numbers = [str(number).encode() for number in range(life.sent)]
    # A second letter of a worker that was killed may give another reason.
    faults = [entry for entry in oracle.findings(checkpoints, letters, numbers) if entry.what != "letter"]
    assert faults == []
    assert audited(life.world)[1].wrong == {}
