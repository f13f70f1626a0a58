"""Builders of comparisons hold to what they were given."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.builders import (
    from_labels,
    from_order,
    from_ordered_pairs,
    from_pages,
    from_taxonomy,
    from_ties,
    from_versions,
    pairs_from_labels,
)
from omdml.errors import FeedbackError, ParameterError
from tests.support.deep import examples


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(0, 60))
def test_pairs_from_labels_are_balanced_and_never_of_one_item(seed, count):
    labels = np.array(["a", "b", "a", "c", "b", "c", "a"])
    rows, similar = pairs_from_labels(labels, count, seed, among=[0, 1, 2, 4])
    assert rows.shape == (count, 2)
    assert similar.sum() == count // 2
    np.testing.assert_array_equal(labels[rows[:, 0]] == labels[rows[:, 1]], similar)
    assert (rows[:, 0] != rows[:, 1]).all()
    assert set(rows.ravel()) <= {0, 1, 2, 4}


def test_every_pair_of_labelled_items_can_come():
    rows, similar = pairs_from_labels([0, 0, 1, 1, 1], 4000, seed=0)
    assert len(np.unique(rows, axis=0)) == 5 * 4
    assert len(np.unique(rows[similar], axis=0)) == 2 + 6


def test_kin_is_closer_than_further_kin():
    draw = np.random.default_rng(0)
    paths = draw.integers(0, 3, (60, 3))
    rows = from_taxonomy(paths, 2000, seed=1, among=np.arange(50))
    shared = [np.logical_and.accumulate(paths[rows[:, 0]] == paths[rows[:, i]], axis=1).sum(axis=1) for i in (1, 2)]
    # Classmates come before siblings, and siblings before cousins.
    assert (shared[0] == shared[1] + 1).all()
    assert set(shared[0]) == {1, 2, 3}
    assert (rows[:, 0] != rows[:, 1]).all()
    assert rows.max() < 50


def test_only_kin_that_exists_is_compared():
    rows = from_taxonomy([["cat", "tabby"], ["cat", "siamese"], ["dog", "beagle"], ["dog", "collie"]], 500, seed=0)
    assert {tuple(row) for row in rows.tolist()} == {
        (q, q ^ 1, s) for q in range(4) for s in range(4) if s // 2 != q // 2
    }
    with pytest.raises(FeedbackError, match="no item has both nearer and further kin"):
        from_taxonomy([["a", "b"], ["a", "b"]], 5, seed=0)


def test_a_taxonomy_of_one_level_is_labels():
    labels = np.random.default_rng(0).integers(0, 4, 50)
    rows = from_taxonomy(labels[:, None], 300, seed=0)
    assert (labels[rows[:, 0]] == labels[rows[:, 1]]).all()
    assert (labels[rows[:, 0]] != labels[rows[:, 2]]).all()


def test_pages_set_relevant_items_against_critical_and_random_others():
    page = np.arange(10, 30)
    relevant = np.isin(page, [12, 20])
    rows = from_pages([1], [page], [relevant], count=6, seed=0)
    assert len(rows) == 2 * 6
    assert set(rows[:, 1]) == {12, 20}
    against = set(rows[rows[:, 1] == 12, 2])
    # These are the irrelevant items that were ranked highest.
    assert {10, 11, 13} <= against
    assert against == set(rows[rows[:, 1] == 20, 2])
    assert not against & {12, 20}
    others = [frozenset(from_pages([1], [page], [relevant], count=6, seed=seed)[:, 2]) for seed in range(20)]
    assert len(set(others)) > 10


@pytest.mark.parametrize(("critical", "expected"), [(1.0, {10, 11, 13, 14}), (0.25, {10})])
def test_the_share_of_critical_ones_is_an_option(critical, expected):
    page = np.arange(10, 30)
    rows = from_pages([1], [page], [page == 12], count=4, seed=0, critical=critical)
    assert expected <= set(rows[:, 2])
    assert len(rows) == 4


def test_pages_too_short_give_what_they_have_and_the_query_is_passed_over():
    rows = from_pages([7, 8, 9], [[7, 1, 2], [1, 2, 3], [1, 2, 3]], [[1, 1, 0], [1, 1, 1], [0, 0, 0]], count=5, seed=0)
    assert rows.tolist() == [[7, 1, 2]]
    assert from_pages([], np.empty((0, 3)), np.empty((0, 3)), count=5, seed=0).shape == (0, 3)
    with pytest.raises(ParameterError, match="critical"):
        from_pages([1], [[2, 3]], [[1, 0]], count=2, seed=0, critical=1.5)


def test_ordered_items_give_both_constructions_of_the_thesis():
    levels = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])
    e, f, g, h = (levels[from_order(levels, 500, seed=0).rows[:, column]] for column in (3, 1, 0, 2))
    assert ((e < f) & (f < g) & (g < h)).all()
    rows, margin = from_ties(levels, 500, seed=0)
    assert rows.shape == (1000, 4)
    np.testing.assert_array_equal(rows[::2, :2], rows[1::2, 1::-1])
    e, f, g, h = (levels[rows[:, column]] for column in (3, 0, 1, 2))
    assert ((e < f) & (f == g) & (g < h)).all()
    assert (rows[:, 0] != rows[:, 1]).all()
    assert (margin == 1).all()


def test_ordered_pairs_stand_against_the_zero_pair():
    levels = np.array([0.1, 0.5, 0.5, 0.9])
    rows, margin = from_ordered_pairs(levels, 500, seed=0)
    assert (levels[rows[:, 3]] < levels[rows[:, 2]]).all()
    assert (rows[:, 0] == rows[:, 1]).all()
    assert len(np.unique(rows[:, 2:], axis=0)) == 5
    assert (margin == 1).all()


@pytest.mark.parametrize(
    ("build", "levels", "match"),
    [
        (from_ordered_pairs, [1, 1, 1], "1 levels of the attribute, expected at least 2"),
        (from_order, [1, 2, 3, 3], "3 levels of the attribute, expected at least 4"),
        (from_ties, [1, 2, 3], "has two items"),
        (from_labels, [0, 0, 1], "the rarest with 1"),
        (pairs_from_labels, [0, 0, 0], "1 labels"),
    ],
)
def test_what_has_no_such_comparison_is_refused(build, levels, match):
    with pytest.raises(FeedbackError, match=match):
        build(levels, 5, seed=0)


def test_versions_next_to_each_other_are_closer_than_those_around_them():
    n, period = 7, 3
    rows, margin = from_versions(np.arange(100, 100 + n), period, 4000, seed=0)
    t, after, r, s = rows.T - 100
    assert (after == t + 1).all()
    assert ((r <= t) & (t < s)).all()
    assert not ((r == t) & (s == after)).any()
    np.testing.assert_array_equal(margin, np.where((s >= r + period) & (r + period >= t + 1), 1, 0))
    assert len(np.unique(rows, axis=0)) == sum((t + 1) * (n - 1 - t) - 1 for t in range(n - 1))


def test_versions_too_few_or_a_period_too_short_are_refused():
    with pytest.raises(FeedbackError, match="2 versions, expected at least three"):
        from_versions([1, 2], 2, 5, seed=0)
    with pytest.raises(ParameterError, match="period=1"):
        from_versions([1, 2, 3], 1, 5, seed=0)


def test_the_same_seed_draws_the_same():
    levels = np.arange(20) // 2
    for build in (from_labels, from_order, from_ties, from_ordered_pairs, pairs_from_labels):
        first, again, other = (
            np.concatenate([np.ravel(part) for part in build(levels, 50, seed)]) for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()


@pytest.mark.parametrize("build", [from_labels, pairs_from_labels, from_ordered_pairs, from_order, from_ties])
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"count": -1}, "count=-1"),
        ({"count": 2.5}, "count=2.5"),
        ({"seed": -1}, "seed=-1"),
        ({"among": [0, 9]}, r"among=\[0, 9\]: expected rows \(k,\) from 0 to 7"),
        ({"among": [-1, 0]}, "among="),
        ({"among": np.arange(8) < 6}, "among of type bool, expected row numbers"),
    ],
    ids=str,
)
def test_draws_that_make_no_sense_are_refused(build, change, match):
    with pytest.raises((FeedbackError, ParameterError), match=match):
        build([1, 1, 2, 2, 3, 3, 4, 4], **{"count": 2, "seed": 0, **change})


@pytest.mark.parametrize("build", [from_labels, pairs_from_labels, from_ordered_pairs, from_order, from_ties])
@pytest.mark.parametrize(
    ("values", "match"),
    [
        ([1, 1, 2, 2, 3, 3, 4, np.nan], "row 7 of l[a-z]+ holds no value"),
        ([1, 1, 2, 2, 3, 3, None, 4], "row 6 of l[a-z]+ holds no value"),
        ([[1, 2], [3, 4]], r"of shape \(2, 2\), expected \(n,\)"),
        (3, r"of shape \(\), expected \(n,\)"),
        ([[1], [1, 2]], "expected an array"),
    ],
    ids=str,
)
def test_labels_and_levels_that_are_missing_or_no_list_are_refused(build, values, match):
    with pytest.raises(FeedbackError, match=match):
        build(values, 2, 0)


@pytest.mark.parametrize(
    "change",
    [{"queries": [0, 1]}, {"relevant": [[0, 1]]}, {"pages": [[1], [2, 3]]}, {"pages": [list("abcde")]}, {"count": -1},
     {"critical": "half"}],
    ids=str,
)  # fmt: skip
def test_pages_that_do_not_fit_together_are_refused(change):
    page = {"queries": [0], "pages": [[1, 2, 3, 4, 5]], "relevant": [[0, 1, 0, 0, 0]], "count": 2, "seed": 0}
    with pytest.raises((FeedbackError, ParameterError), match="expected"):
        from_pages(**page | change)


@pytest.mark.parametrize(("versions", "period"), [([[1, 2, 3]] * 3, 2), ([1.5, 2, 3], 2), ([1, 2, 3], np.nan)])
def test_versions_that_are_no_row_numbers_are_refused(versions, period):
    with pytest.raises((FeedbackError, ParameterError), match="expected"):
        from_versions(versions, period, 2, 0)
