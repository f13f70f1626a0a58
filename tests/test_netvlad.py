"""SetNet against the golden vectors, and its gradient against finite differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from omdml.comparisons import Judgement
from omdml.errors import FeedbackError, ParameterError, StartError
from omdml.learners.setnet import SetNet
from omdml.metrics.sets import SetMetric

GOLDEN = Path(__file__).parent / "golden"


def golden():
    """Parameters, elements, and the rows of each set."""
    with np.load(GOLDEN / "netvlad.npz") as data:
        named = {name: data[name] for name in data.files}
    named["scale"] = np.ones(1)
    sets = [np.flatnonzero(named["owner"] == owner) for owner in np.unique(named["owner"])]
    return named, {"x": named["elements"]}, sets


def parameters(named):
    """Those of the learner, of the golden ones."""
    return {name: np.asarray(named[name]) for name in ("A", "bias", "c", "P", "p0", "w", "b", "scale")}


def logistic_loss(start, features, judgement):
    """The loss of one judgement, positives and negatives each averaged (SETNET 3.3-3.4)."""
    metric = SetMetric({"x": features["x"].shape[1]}, start)
    query = metric.embed_sets(features, [row[None] for row in judgement.query])
    loss = 0.0
    for sets, relevant in ((judgement.relevant, True), (judgement.irrelevant, False)):
        if sets:
            z = float(start["w"]) * (query @ metric.embed_sets(features, list(sets)).T) + float(start["b"])
            loss += np.logaddexp(0, -z if relevant else z).mean()
    return loss


def test_the_golden_vectors_of_sets_and_elements_are_reproduced():
    named, features, sets = golden()
    metric = SetMetric({"x": 10}, parameters(named))
    np.testing.assert_allclose(metric.embed_sets(features, sets), named["v_set"], rtol=1e-9)
    np.testing.assert_allclose(metric.embed(features), named["v_element"], rtol=1e-9)


def test_the_golden_losses_come_out_of_the_scores():
    named, features, sets = golden()
    metric = SetMetric({"x": 10}, parameters(named))
    scores = metric.similarities(metric.embed(features), metric.embed_sets(features, sets))
    for place, rows in enumerate(sets):
        own = np.isin(np.arange(len(scores)), rows)
        loss = -np.log(scores[own, place]).mean() - np.log(1 - scores[~own, place]).mean()
        assert loss == pytest.approx(named["loss"][place], rel=1e-9)


def test_the_golden_totals_of_greedy_matching_are_reproduced():
    named, _, _ = golden()
    with np.load(GOLDEN / "greedy_match.npz") as data:
        scores, totals = data["scores"], data["total"]
    from omdml.kernels.matching import greedy_matches

    for one, total in zip(scores, totals, strict=True):
        found = greedy_matches(np.ascontiguousarray(one), np.array([0, one.shape[1]]))
        assert found[0] == pytest.approx(total, rel=1e-9)


def test_a_step_goes_along_the_gradient_that_finite_differences_find():
    named, features, sets = golden()
    start = parameters(named)
    judgement = Judgement(np.array([0, 9]), (sets[2], sets[4]), (sets[5],))
    eta = 1e-3
    model = SetNet({"x": 10}, eta=eta, momentum=0.0, decay=0.0, step="ogd", init=start, dtype="float64")
    model.learn_many([judgement], features)
    for name in ("A", "bias", "c", "P", "p0", "w", "b"):
        moved = (np.reshape(start[name], -1) - np.reshape(model.matrices[name], -1)) / eta
        for place in range(0, moved.size, max(1, moved.size // 7)):
            ends = []
            for sign in (1, -1):
                nudged = {key: np.array(value, np.float64) for key, value in start.items()}
                nudged[name].reshape(-1)[place] += sign * 1e-6
                ends.append(logistic_loss(nudged, features, judgement))
            assert moved[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-8), (name, place)


@pytest.mark.parametrize("eta", [1e-4, 1.0, 1e4])
def test_the_capped_step_never_diverges(eta):
    draw = np.random.default_rng(0)
    features = {"x": draw.normal(0, 1, (80, 6))}
    model = SetNet({"x": 6}, clusters=3, rank=4, eta=eta)
    sets = [draw.choice(80, draw.integers(1, 5), replace=False) for _ in range(300)]
    model.learn_many([Judgement(*sets[t : t + 1], (sets[t + 1],), (sets[t + 2],)) for t in range(0, 297, 3)], features)
    assert all(np.isfinite(array).all() for array in model.matrices.values())


def test_a_set_without_elements_is_refused_by_its_place():
    draw = np.random.default_rng(1)
    features = {"x": draw.normal(0, 1, (80, 6))}
    one, none = np.array([3]), np.array([], np.int64)
    model = SetNet({"x": 6}, clusters=3, rank=4)
    with pytest.raises(FeedbackError, match="judgement|comparison|element") as caught:
        model.learn_many([Judgement(one, (one + 1,), (one + 2,)), Judgement(one, (none,), (one,))], features)
    assert caught.value.row == 1
    assert model.version == 0


def test_too_few_items_for_the_clusters_are_refused():
    with pytest.raises(StartError):
        SetNet({"x": 6}, clusters=8).start({"x": np.random.default_rng(2).normal(0, 1, (5, 6))})


def test_a_hyperparameter_out_of_range_is_refused_by_name():
    with pytest.raises(ParameterError, match="momentum"):
        SetNet({"x": 6}, momentum=1.0)
