"""The start of all models of a pattern: computed once, shared, and changed by none of them."""

from __future__ import annotations

import copy

import pytest

from omdml import LEARNERS
from omdml.comparisons import conversion
from omdml.feedback import encode
from omdml.streams.protocols.log import Partition, Record
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.specs import Specs
from omdml.workers.events.decoding import Batch
from omdml.workers.model.claim import first_guard
from omdml.workers.model.judging.guard import Guard
from omdml.workers.model.judging.held_out_window import Window
from omdml.workers.model.owned_model import OwnedModel
from omdml.workers.operate.replay import nothing_timed
from tests.support.worlds import TASKS, catalogue, feedback

KINDS = {"pair": {"tasks": list(TASKS)}, "set": {"clusters": 2, "rank": 4}}


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    return catalogue(tmp_path_factory.mktemp("items"))


def resolved(items, options):
    """The spec of ``shop-1``, a model of a pattern with these options, on features."""
    models = {"shop-*": {"coordinates": "features", **options}}
    table = {"catalogues": {"items": {"path": "unused"}}, "models": models, "guard": {"on": False}}
    return Specs(load(None, {}, table), {"items": items}).of("shop-1")


def taught(spec, name, learner, count, seed=0):
    """A model with this learner, after so many more events."""
    kind = sorted(learner.accepts)[-1]
    model = OwnedModel(name, learner, spec.catalogue, "epoch", spec.digest, Guard(spec.guard, spec.first_metric()))
    model.home, batch = Partition("topic", 0), Batch()
    for offset, event in enumerate(feedback(kind, count, seed, model=name)):
        batch.add(Record(model.home, offset, encode(event)), event, conversion(learner.accepts)(event))
    model.take(batch, nothing_timed)
    return model


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_what_one_model_learns_changes_no_other_one_of_its_pattern(items, name):
    spec = resolved(items, {"learner": name, **KINDS.get(sorted(LEARNERS[name].accepts)[-1], {})})
    first, before = spec.fresh(), spec.first_metric().to_tensors()
    start = first.to_bytes()
    taught_model = taught(spec, "shop-1", first, 40)
    assert taught_model.learner.version >= 40
    assert taught_model.learner.to_bytes() != start
    assert spec.fresh().to_bytes() == start
    assert {key: array.tobytes() for key, array in spec.first_metric().to_tensors()[0].items()} == {
        key: array.tobytes() for key, array in before[0].items()
    }
    by_way_of_bytes = taught(spec, "shop-2", spec.learner.from_bytes(start), 40)
    assert by_way_of_bytes.learner.to_bytes() == taught_model.learner.to_bytes()


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_a_copy_amid_a_block_learns_the_same_and_by_itself(items, name):
    spec = resolved(items, {"learner": name, **KINDS.get(sorted(LEARNERS[name].accepts)[-1], {})})
    learner = taught(spec, "shop-1", spec.fresh(), 21).learner
    before, twin = learner.to_bytes(), copy.deepcopy(learner)
    after = taught(spec, "shop-1", learner, 21, seed=1).learner.to_bytes()
    assert after != before
    assert twin.to_bytes() == before
    assert taught(spec, "shop-1", twin, 21, seed=1).learner.to_bytes() == after


def test_guards_of_models_that_start_alike_decide_by_themselves(items):
    spec = resolved(items, {})
    guard, other_guard = first_guard(spec, spec.start()), first_guard(spec, spec.start())
    assert (other_guard.yardstick, other_guard.reference_bytes) == (guard.yardstick, guard.reference_bytes)
    before = copy.deepcopy(other_guard.yardstick)
    model = taught(spec, "shop-1", spec.fresh(), 5)
    guard.decide(model.metric, 5, Window([], 1), 0, items.features)
    assert guard.yardstick.decided == 5
    assert guard.yardstick != before
    assert other_guard.yardstick == first_guard(spec, spec.start()).yardstick == before
