"""The river adapter: a transformer that learns from labels, in pipelines and on its own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from river import base

from omdml.adapters.river import MetricTransformer
from omdml.errors import FeedbackError, ParameterError
from omdml.learners import LEARNERS

MODELS = [MetricTransformer(**options) for options in MetricTransformer._unit_test_params()]
EMBEDDING = [name for name, kind in LEARNERS.items() if not kind.no_embedding]


def samples(count=200, seed=0):
    """Two classes, which differ in one of three features."""
    draw = np.random.default_rng(seed)
    for _ in range(count):
        y = int(draw.integers(2))
        yield {"tells": y + draw.normal(0, 0.2), "noise": draw.normal(), "more": draw.normal()}, y


def nearest():
    # It is imported late, because it imports narwhals.
    from river import neighbors

    return neighbors.KNNClassifier(engine=neighbors.LazySearch(window_size=500))


def rate(model, count=None):
    """The share of samples whose class was predicted rightly before it was learned."""
    # It is imported late, because half a second of all tests' collection would go into it.
    from river import datasets

    stream = list(datasets.ImageSegments().take(count))
    right = 0
    for x, y in stream:
        right += model.predict_one(x) == y
        model.learn_one(x, y)
    return right / len(stream)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.learner)
def test_river_finds_nothing_to_complain_of(model):
    # It is imported late, because it imports scipy.stats.
    from river import checks

    for check in checks.yield_checks(model):
        check(model.clone())


def test_a_pipeline_gives_its_classifier_transformed_samples():
    # A pipeline takes a SupervisedTransformer for its final step, and the classifier then learns raw features.
    seen = []

    class Watching(base.Classifier):
        def learn_one(self, x, y):
            seen.append(x)

        def predict_proba_one(self, x):
            seen.append(x)
            return {}

    model = MetricTransformer() | Watching()
    for x, y in samples():
        model.predict_one(x)
        model.learn_one(x, y)
    assert {frozenset(x) for x in seen[-50:]} == {frozenset({0, 1, 2})}
    assert model["MetricTransformer"]._learner.version > 0


def test_learned_features_beat_scaled_ones_for_nearest_neighbours():
    # It is imported late, because it imports scipy.stats, a quarter of the time to collect all tests.
    from river import preprocessing

    plain = rate(preprocessing.StandardScaler() | nearest(), 1000)
    learned = rate(preprocessing.StandardScaler() | MetricTransformer() | nearest(), 1000)
    assert learned > plain + 0.01


@pytest.mark.parametrize("name", EMBEDDING)
def test_every_learner_with_an_embedding_can_stand_behind_it(name):
    model = MetricTransformer(name, parameters={})
    for x, y in samples():
        model.learn_one(x, y)
    item, near, far = ({"tells": value, "noise": 0.3, "more": 0.1} for value in (0.0, 0.1, 1.0))
    item, near, far = (np.array(list(model.transform_one(x).values())) for x in (item, near, far))
    assert ((item - near) ** 2).sum() < 0.1 * ((item - far) ** 2).sum()


@pytest.mark.parametrize(
    ("name", "why"), [("oasis", "bilinear"), ("setnet", "judged sets"), ("signed", "ordered pairs")]
)
def test_a_learner_that_embeds_no_single_items_is_refused_with_the_reason(name, why):
    with pytest.raises(ParameterError, match=rf"learner='{name}': expected one of .*diagonal.*; it.* {why}"):
        MetricTransformer(name)


@pytest.mark.parametrize("name", EMBEDDING)
def test_more_features_than_samples_only_make_the_warm_up_longer(name):
    draw = np.random.default_rng(0)
    model = MetricTransformer(name)
    for turn in range(80):
        model.learn_one({f"f{j}": draw.normal() for j in range(40)}, turn % 3)
    assert model._learner.version > 0
    assert model._warm_up_samples == []


def test_several_tasks_are_refused_at_construction():
    with pytest.raises(ParameterError, match=r"tasks=\['a', 'b'\]: expected one at most: a sample has one label"):
        MetricTransformer("cpmtml", {"tasks": ["a", "b"], "rank": 2})


@pytest.mark.parametrize(
    "parameters",
    [
        {"groups": {"x": 3}},
        {"groups": {"x": [0, 0, 1]}},
        {"init": {"x": [1.0, 1.0, 0.5]}},
        {"init": {"x": [1.0, 1.0, 0.5]}, "groups": {"x": [7, 7, 2]}},
    ],
)
def test_groups_and_arrays_to_start_from_fit_if_the_features_do(parameters):
    model = MetricTransformer("diagonal", parameters)
    for x, y in samples(50):
        model.learn_one(x, y)
    assert model._learner.version > 0


def test_arrays_that_do_not_fit_are_refused_and_memory_stays_bounded():
    model = MetricTransformer("diagonal", {"groups": {"x": 2}}, warm_up=5)
    for x, y in samples(4):
        model.learn_one(x, y)
    with pytest.raises(ParameterError, match="expected a number of groups that divides 3"):
        model.learn_one(x, y)
    assert model._warm_up_samples == []


def test_a_missing_feature_is_zero_and_an_unknown_one_is_ignored():
    model = MetricTransformer()
    for x, y in samples():
        model.learn_one(x, y)
    expected = model.transform_one({"tells": 1.0, "noise": 0.0, "more": 0.0})
    assert model.transform_one({"tells": 1.0}) == expected
    assert model.transform_one({"tells": 1.0, "noise": None, "more": float("nan"), "stranger": 5}) == expected


def test_before_the_warm_up_is_over_samples_pass_as_they_are():
    model = MetricTransformer(warm_up=3)
    for x, y in samples(2):
        model.learn_one(x, y)
        assert model.transform_one(x) == x
    model.learn_one({"tells": 0.5}, 0)
    assert set(model.transform_one(x)) == {0, 1, 2}


def test_a_feature_that_is_no_number_is_named():
    with pytest.raises(FeedbackError, match=r"feature 'colour' is 'red'.*encode it"):
        MetricTransformer().learn_one({"colour": "red"}, 1)


def test_one_class_alone_teaches_nothing():
    model = MetricTransformer(warm_up=5)
    for x, _ in samples(50):
        model.learn_one(x, "only")
    assert model._learner.version == 0


def test_the_reservoir_is_bounded_and_the_class_not_seen_for_longest_leaves():
    model = MetricTransformer(capacity=3, classes=4, warm_up=2)
    for turn, (x, _) in enumerate(samples(100)):
        model.learn_one(x, turn % 10)
    assert list(model._reservoirs) == [6, 7, 8, 9]
    assert max(len(reservoir.items) for reservoir in model._reservoirs.values()) <= 3


def test_the_same_seed_gives_the_same_coordinates_and_another_one_others():
    first, again, other = MetricTransformer(), MetricTransformer(), MetricTransformer(seed=1)
    for model in (first, again, other):
        for x, y in samples():
            model.learn_one(x, y)
    assert first.transform_one(x) == again.transform_one(x) != other.transform_one(x)


@pytest.mark.parametrize("name", ["comparisons", "capacity", "classes", "warm_up"])
def test_a_count_out_of_range_is_refused(name):
    with pytest.raises(ParameterError, match=f"{name}=0"):
        MetricTransformer(**{name: 0})


def test_importing_omdml_leaves_rivers_heavy_modules_alone():
    code = "import sys, omdml, omdml.adapters.river; print([name for name in sys.modules if 'river.drift' in name])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_one_sample_of_huge_numbers_spoils_nothing():
    adapter = MetricTransformer("lomdml", {"rank": 2}, warm_up=5)
    draw = np.random.default_rng(0)
    for turn in range(60):
        x = {f"f{i}": float(value) for i, value in enumerate(draw.normal(turn % 3, 1, 4))}
        adapter.learn_one({**x, "f0": 1e200} if turn in (2, 20) else x, "rare" if turn == 20 else turn % 3)
    assert adapter._learner.version > 0
    assert np.isfinite(list(adapter.transform_one(x).values())).all()


def test_a_whole_number_beyond_floats_counts_as_missing():
    huge, absent = MetricTransformer(warm_up=2), MetricTransformer(warm_up=2)
    for i in range(6):
        huge.learn_one({"a": 10**400, "b": float(i)}, i % 2)
        absent.learn_one({"b": float(i)}, i % 2)
    assert list(huge.transform_one({"b": 1.0}).values()) == list(absent.transform_one({"b": 1.0}).values())


def test_a_sample_or_a_label_of_the_wrong_kind_is_refused():
    with pytest.raises(FeedbackError, match="sample is None"):
        MetricTransformer().learn_one(None, 1)
    with pytest.raises(FeedbackError, match=r"label is \[1\]"):
        MetricTransformer().learn_one({"a": 1.0}, [1])
    with pytest.raises(ParameterError, match="parameters="):
        MetricTransformer(parameters=[1])
