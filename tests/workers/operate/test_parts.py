"""A command on a model in parts, or a change of its settings, affects all parts and the whole."""

from __future__ import annotations

import pytest

from omdml.errors import ConfigurationError, FormatError, StoreError
from omdml.streams.part_names import part_name
from omdml.workers.configuration.specs import Specs
from omdml.workers.doctor.checks.checkpoints import look_at_checkpoints
from omdml.workers.model.claim import claim
from omdml.workers.operate import models, parts, topics
from tests.support.learning.audits import audited
from tests.support.learning.parts import GUARD, HOT, drained, hot_world, published, scatter, spec_of, with_models
from tests.support.worlds import damage, events, extents, run_until_idle

ORDINARY = {"hot": {**HOT["hot"], "parts": False}}


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


@pytest.mark.parametrize("deleted", range(4))
def test_after_a_reset_nobody_waits_for_a_deleted_part_that_gets_no_events(tmp_path, deleted):
    world = hot_world(tmp_path)
    scatter(world, 100)
    drained(world, world.worker())
    damage(world, part_name("hot", deleted))
    assert parts.reset(world.store, spec_of(world), "hot", "test") == 4
    key = next(key for key in map(str, range(99)) if world.log.home(key).number == (deleted + 1) % 4)
    world.send(*events(20, seed=1, model="hot"), key=key)
    drained(world, world.worker())
    assert published(world)[0].version == 20


def test_reset_of_a_model_that_learned_nothing_is_refused(tmp_path):
    world = hot_world(tmp_path)
    with pytest.raises(StoreError):
        parts.reset(world.store, spec_of(world), "hot", "test")
    with pytest.raises(ConfigurationError, match="omdml models reset hot"):
        parts.require_whole(part_name("hot", 1), "reset")


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


def test_a_worker_that_runs_waits_for_no_part_that_was_deleted_meanwhile(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 120)
    worker = world.worker()
    run_until_idle(worker, 40)
    parts.delete(world.store, "hot")
    key = next(key for key in map(str, range(99)) if world.log.home(key).number == 2)
    world.send(*events(20, seed=1, model="hot"), key=key)
    drained(world, worker)
    assert published(world)[0].version == 20


def test_a_rewind_learns_all_parts_again(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 150)
    drained(world, world.worker())
    topics.rewind(extents(world), world.store, "crc32", ["hot"], None)
    assert world.store.models() == []
    drained(world, world.worker())
    assert published(world)[0].version == 150


def test_a_model_with_a_checkpoint_is_refused_until_it_was_copied(tmp_path):
    world = hot_world(tmp_path, models=ORDINARY)
    world.send(*events(70, model="hot"), key="hot")
    drained(world, world.worker())
    with_models(world, HOT)
    with pytest.raises(ConfigurationError, match="learned without parts"):
        drained(world, world.worker())
    # The error advises these steps.
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


def test_the_audit_finds_every_event_in_its_part(tmp_path):
    world = hot_world(tmp_path, guard=GUARD)
    scatter(world, 200)
    drained(world, world.worker())
    assert audited(world)[1].wrong == {}


def test_the_doctor_says_what_to_do_about_a_part_or_a_whole_that_cannot_be_read(tmp_path):
    world = hot_world(tmp_path)
    scatter(world, 100)
    drained(world, world.worker())
    specs, names = Specs(world.configuration, {"items": world.catalogue}), world.store.models()
    for broken in (part_name("hot", 1), "hot"):
        damage(world, broken)
        report = look_at_checkpoints(specs, world.store, names, lambda: extents(world))
        (remark,) = report.remarks()
        assert "omdml models reset hot" in remark.text
        assert "replay" not in remark.text
    assert report.sound == 3
