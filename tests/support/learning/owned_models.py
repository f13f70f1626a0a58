"""Models as a worker owns them: begun, and resumed by another worker."""

from __future__ import annotations

import pytest

from omdml.snapshot import Checkpoint
from omdml.streams.protocols.log import Partition
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.specs import Specs
from omdml.workers.model.judging.guard import Guard
from omdml.workers.model.owned_model import OwnedModel
from tests.support.worlds import TASKS, catalogue

HOME = Partition("topic", 0)
SECRET = b"s" * 32


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    items = catalogue(tmp_path_factory.mktemp("items"))
    models = {
        "shop": {"learner": "lomdml", "rank": 3},
        "quadruplet": {"learner": "qwise"},
        "pair": {"learner": "cpmtml", "tasks": list(TASKS), "rank": 3},
        "set": {"learner": "setnet", "rank": 4, "clusters": 2},
    }
    table = {"catalogues": {"items": {"path": "unused"}}, "models": models, "guard": {"hold_out": 4}}
    return Specs(load(None, {}, table), {"items": items})


def begun(specs, name="shop"):
    spec = specs.of(name)
    learner = spec.fresh()
    guard = Guard(spec.guard, learner.metric)
    model = OwnedModel(name, learner, spec.catalogue, "epoch", spec.digest, guard, SECRET)
    model.home = HOME
    return model


def resumed(specs, model):
    """The same model, as another worker goes on with it."""
    checkpoint = Checkpoint.from_bytes(model.checkpoint("test").to_bytes())
    spec = specs.of(model.name)
    learner = spec.resumed(checkpoint)
    other = OwnedModel(
        model.name, learner, spec.catalogue, "later", spec.digest, Guard(spec.guard, learner.metric), SECRET
    )
    other.resume(checkpoint)
    return other
