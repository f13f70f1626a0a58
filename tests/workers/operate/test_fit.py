"""``omdml replay --fit``: a start from the first half of the log, and what the rest adds to it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from omdml import Qwise
from omdml.batch import batch_start
from omdml.errors import StartError
from omdml.feedback import encode
from omdml.workers.operate import fit
from omdml.workers.operate.replay import ReplayedModel, replayed_spec
from tests.support.files.replays import ALONE, LoggedShop
from tests.support.worlds import events, feedback, triplets


def test_the_first_half_of_the_log_is_fitted_and_the_rest_replayed(shop):
    shop.tell(*events(80), *(payload for payload in events(10, model="user-1")))
    first, rest, count = fit.cut(shop.log_read(), "shop", shop.specs.find("shop"))
    model = fit.fitted("shop", shop.specs.find("shop"), ALONE, first, None)
    for records in rest:
        model.learn(records)
    assert (count, model.learner.version) == (40, 40)
    items = {name: np.asarray(x) for name, x in shop.catalogue.features.items()}
    start = batch_start(Qwise(dims=dict(shop.catalogue.dims)), triplets(80)[:40], items)
    twin = Qwise(dims=dict(shop.catalogue.dims), init={name: M.astype(np.float32) for name, M in start.items()})
    twin.learn_many(triplets(80)[40:], items)
    assert model.learner.to_bytes() == twin.to_bytes()


def test_a_long_log_is_fitted_on_its_first_comparisons_only(shop):
    shop.tell(*events(80))
    assert fit.cut(shop.log_read(), "shop", shop.specs.find("shop"), most=25).events == 25


def test_a_ranking_is_never_cut_in_two(shop):
    shop.tell(
        *events(3), b'{"type":"ranking","model":"shop","query":"i0","relevant":["i1","i2"],"irrelevant":["i3","i4"]}'
    )
    assert fit.cut(shop.log_read(), "shop", shop.specs.find("shop"), most=2).events == 2
    shop.tell(*events(2))
    assert fit.cut(shop.log_read(), "shop", shop.specs.find("shop"), most=6).events == 3


def test_events_that_bring_vectors_and_broken_ones_are_fitted_like_others(shop):
    shop.tell(*events(20))
    with_vectors = [json.loads(event) for event in events(40, seed=3)]
    for event in with_vectors:
        event["features"] = {"new": {"shape": [0.5] * 9, "noise": [0.1] * 5}}
        event["query"] = "new"
    shop.tell(*(json.dumps(event).encode() for event in with_vectors))
    shop.tell(b'{"type":"triplet","model":"shop","query":"i0","relevant":"i1","irrelevant":"zebra"}', *events(61))
    first, _, _ = fit.cut(shop.log_read(), "shop", shop.specs.find("shop"))
    model = fit.fitted("shop", shop.specs.find("shop"), ALONE, first, None)
    assert [refusal.error.reason for refusal in model.refused] == ["unknown_item"]
    assert model.next == first[-1].offset + 1
    vectors = shop.catalogue.scale(
        {name: np.array([vector]) for name, vector in with_vectors[0]["features"]["new"].items()}
    )
    items = {name: np.concatenate([x, vectors[name]]) for name, x in shop.catalogue.features.items()}
    of_new = triplets(40, seed=3)
    of_new[:, 0] = len(shop.catalogue.ids)
    start = batch_start(Qwise(dims=dict(shop.catalogue.dims)), np.concatenate([triplets(20), of_new]), items)
    twin = Qwise(dims=dict(shop.catalogue.dims), init={name: M.astype(np.float32) for name, M in start.items()})
    (tensors, _), (expected, _) = model.learner.metric.to_tensors(), twin.metric.to_tensors()
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        np.testing.assert_allclose(tensor, expected[name], rtol=1e-4, atol=1e-6)


def test_a_learner_without_a_batch_form_and_an_empty_log_cannot_be_fitted(shop):
    with pytest.raises(StartError, match=r"lomdml has no batch form to begin at: pass --learner omdml --fit"):
        fit.cut(shop.log_read(), "shop", replayed_spec(shop.specs, "shop", "lomdml"))
    with pytest.raises(StartError, match=r"dca needs no start that is fitted on a log, .* leave --fit out"):
        fit.cut(shop.log_read(), "shop", replayed_spec(shop.specs, "shop", "dca"))
    with pytest.raises(StartError, match="too few to fit on"):
        fit.cut(shop.log_read(), "shop", shop.specs.find("shop"))


def test_quadruplets_keep_their_margins_in_a_fit(tmp_path):
    shop = LoggedShop(tmp_path, {"shop": {"learner": "diagonal"}})
    events = list(feedback("quadruplet", 40))
    shop.tell(*map(encode, events))
    first, _, _ = fit.cut(shop.log_read(), "shop", shop.specs.find("shop"))
    spec = shop.specs.find("shop")
    _, margin, _ = fit.gathered(
        ReplayedModel("shop", spec.fresh(), spec, ALONE, None).locate(first), ["shape", "noise"]
    )
    np.testing.assert_array_equal(margin, [event.margin for event in events[:20]])
