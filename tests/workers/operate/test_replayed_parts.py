"""A version of a model in parts is made again from the log, by its vector."""

from __future__ import annotations

import pytest

from omdml.errors import ConfigurationError
from omdml.workers.model.parts.vector import Vector
from omdml.workers.operate.replayed_parts import compared, replayed, snapshot_of, start_of
from tests.support.learning.parts import GUARD, drained, expected, hot_world, same_sums, scatter, spec_of


def test_every_published_vector_replays_to_the_same_bytes(tmp_path):
    world = hot_world(tmp_path, guard=GUARD)
    for wave in range(3):
        scatter(world, 90, seed=wave)
        drained(world, world.worker(), turns=30)
    spec, placement = spec_of(world), world.store.placement(world.log.topic_id)
    replayed_versions = 0
    for line in world.store.history("hot"):
        _, snapshot = world.store.load("hot", line["version"])
        if line["what"] != "published" or not snapshot.vector:
            continue
        vector, start = Vector.of_text(snapshot.vector), start_of("hot", spec, world.store)
        log = [[record for part in world.log.partitions for record in world.log.read(part, 0, 100_000)]]
        replayed_again = replayed("hot", spec, start, placement, world.store.secret(), vector, log)
        again = snapshot_of("hot", spec, replayed_again.learner, vector)
        assert again.digest == snapshot.digest
        assert "same bytes" in compared(world.store, again)
        assert same_sums(replayed_again.learner, expected(world, vector.positions, GUARD))
        replayed_versions += 1
    assert replayed_versions >= 3


def test_a_replay_of_another_vector_says_that_it_differs(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 80)
    drained(world, world.worker())
    spec, placement = spec_of(world), world.store.placement(world.log.topic_id)
    vector = Vector.of_text("0:3,1:2")
    log = [[record for part in world.log.partitions for record in world.log.read(part, 0, 100_000)]]
    replayed_again = replayed("hot", spec, start_of("hot", spec, world.store), placement, None, vector, log)
    assert replayed_again.learner.version == 5
    assert "not kept" in compared(world.store, snapshot_of("hot", spec, replayed_again.learner, vector))
    with pytest.raises(ConfigurationError, match="4 partitions"):
        replayed("hot", spec, start_of("hot", spec, world.store), placement, None, Vector.of_text("7:1"), [])
