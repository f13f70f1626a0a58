"""How clearly a metric gets comparisons right, against a slow literal twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from omdml import LEARNERS
from omdml.learners.setnet import SetNet
from omdml.margins import margins, margins_of_sets, ratio
from omdml.metrics import ProjectionMetric
from tests.support.deep import examples
from tests.support.learning.judged import features as elements
from tests.support.learning.judged import judgements
from tests.support.worlds import TASKS, items, triplets

DIMS = {"a": 3, "b": 2}


def literal_margins(closeness, rows):
    """``(c(near) - c(far)) / (|c(near)| + |c(far)|)`` of one comparison after another."""
    results = []
    for row in rows:
        q, r, p, s = row if len(row) == 4 else (row[0], row[1], row[0], row[2])
        near, far = closeness(q, r), closeness(p, s)
        total = abs(near) + abs(far)
        results.append((near - far) / total if total else 0.0)
    return results


def pair_score(metric, table, task=None):
    """What the metric itself says of two rows, one pair at a time."""

    def distance(left, right):
        both = metric.embed({name: table[name][[left, right]] for name in metric.dims}, task).astype(np.float64)
        return -float(((both[0] - both[1]) ** 2).sum())

    def score(left, right):
        query = {name: table[name][left] for name in metric.dims}
        return float(metric.score(query, {name: table[name][[right]] for name in metric.dims}, task)[0])

    return distance if metric.euclidean else score


def started(name):
    """A learner of this name at its start on the items of our worlds, and their table."""
    table, _ = items()
    tasks = {"tasks": list(TASKS)} if LEARNERS[name].accepts == {"pair"} else {}
    learner = LEARNERS[name](dims={key: matrix.shape[1] for key, matrix in table.items()}, **tasks)
    learner.start(table)
    return learner, table


@pytest.mark.parametrize("name", [name for name in LEARNERS if "set" not in LEARNERS[name].accepts])
@pytest.mark.parametrize("width", [3, 4])
def test_margins_are_those_of_one_comparison_after_another(name, width):
    learner, table = started(name)
    metric = learner.metric
    rows = triplets(40)
    if width == 4:
        rows = np.column_stack([rows[:, :2], rows[::-1, 2], rows[:, 2]])
    for task in metric.tasks or (None,):
        expected = literal_margins(pair_score(metric, table, task), rows.tolist())
        np.testing.assert_allclose(margins(metric, rows, table, task), expected, rtol=1e-4, atol=1e-6)


def test_a_task_that_the_metric_does_not_know_is_asked_of_the_metric_for_all():
    learner, table = started("lomdml")
    rows = triplets(10)
    np.testing.assert_array_equal(
        margins(learner.metric, rows, table, "nobody's"), margins(learner.metric, rows, table)
    )


def literal_margin_of_sets(metric, judged, table):
    """Half of the mean cosine of relevant sets with the query, less that of irrelevant ones; vectors are units."""

    def cosine(members):
        query, other = metric.embed_sets(table, [judged.query, members]).astype(np.float64)
        return sum(query * other)

    near, far = ([cosine(members) for members in sets] for sets in (judged.relevant, judged.irrelevant))
    return (sum(near) / len(near) - sum(far) / len(far)) / 2


def test_margins_of_sets_are_those_of_one_judgement_after_another():
    table, judged = elements(), judgements(20)
    learner = SetNet(dims=DIMS, rank=3, clusters=2)
    learner.start(table)
    expected = [literal_margin_of_sets(learner.metric, judgement, table) for judgement in judged]
    np.testing.assert_allclose(margins_of_sets(learner.metric, judged, table), expected, rtol=1e-4, atol=1e-6)


def test_a_judgement_of_one_kind_of_sets_has_no_margin():
    table = elements()
    learner = SetNet(dims=DIMS, rank=3, clusters=2)
    learner.start(table)
    (whole,) = judgements(1)
    halves = [whole._replace(relevant=()), whole, whole._replace(irrelevant=())]
    result = margins_of_sets(learner.metric, halves, table)
    assert (result[0], result[2]) == (0.0, 0.0)
    assert result[1] == pytest.approx(margins_of_sets(learner.metric, [whole], table)[0], rel=1e-5)
    assert margins_of_sets(learner.metric, [], table).shape == (0,)


vectors = hnp.arrays(np.float64, (6, 3), elements=st.floats(-100, 100, width=32))


@settings(max_examples=examples(60), deadline=None)
@given(table=vectors, scale=st.sampled_from([0.25, 4.0, 1024.0]), data=st.data())
def test_margins_are_bounded_odd_and_blind_to_scale(table, scale, data):
    rows = data.draw(hnp.arrays(np.int64, (5, 3), elements=st.integers(0, 5)))
    draw = np.random.default_rng(0).normal(0, 1, (2, 3))
    features = {"a": table}
    result = margins(ProjectionMetric({"a": 1.0}, {"a": draw}), rows, features)
    assert np.all(np.abs(result) <= 1)
    np.testing.assert_array_equal(
        margins(ProjectionMetric({"a": 1.0}, {"a": draw}), rows[:, [0, 2, 1]], features), -result
    )
    scaled = margins(ProjectionMetric({"a": 1.0}, {"a": draw * scale}), rows, features)
    np.testing.assert_allclose(scaled, result, atol=1e-12)


def test_a_metric_that_overflows_has_margins_that_are_no_numbers():
    huge = ProjectionMetric({"a": 1.0}, {"a": np.full((1, 2), 1e308)})
    with np.errstate(all="ignore"):
        result = margins(huge, np.array([[0, 1, 2]]), {"a": np.array([[1e3, 1e3], [2e3, -1.0], [-3e3, 5.0]])})
    assert np.isnan([*result, ratio(np.nan, np.nan)]).all()
