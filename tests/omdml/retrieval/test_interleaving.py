from __future__ import annotations

from functools import cache
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omdml.retrieval.interleaving import coins, team_draft, verdict
from tests.naive import interleaving as naive

rankings = st.lists(st.sampled_from("abcdefghij"), unique=True)


@given(rankings, rankings, st.integers(0, 12), st.binary(min_size=1, max_size=20))
def test_a_draft_is_what_the_paper_says(first, second, k, key):
    assert team_draft(first, second, k, key) == naive.team_draft(first, second, k, islice(coins(key), 100))


@given(rankings, rankings, st.integers(1, 12), st.binary(min_size=1, max_size=20))
def test_a_shorter_page_is_the_beginning_of_a_longer_one(first, second, k, key):
    assert team_draft(first, second, k + 3, key)[:k] == team_draft(first, second, k, key)


def test_either_ranking_picks_first_about_as_often():
    teams = [team_draft(["a"], ["b"], 1, str(number).encode())[0].team for number in range(2000)]
    assert np.mean(teams) == pytest.approx(0.5, abs=0.05)


@given(st.integers(0, 60), st.integers(0, 60))
def test_a_verdict_is_given_exactly_when_the_evidence_reaches_twenty(first, second):
    result, evidence = verdict(first, second), naive.evidence(first, second)
    assert result.confidence == pytest.approx(max(0.0, float(1 - 1 / evidence)), abs=1e-9)
    assert (result.better is not None) == (evidence >= 20)
    if result.better is not None:
        assert result.better == (second > first)


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_interval_leaves_out_one_half_exactly_when_there_is_a_verdict(first, second):
    result = verdict(first, second)
    assert 0 <= result.low <= result.high <= 1
    if first + second:
        assert result.low <= result.share <= result.high
    assert (result.better is not None) == (not result.low <= 0.5 <= result.high)


def test_equal_rankings_that_are_watched_all_the_time_seldom_get_a_verdict():
    draw = np.random.default_rng(0)
    # Many walks come through the same counts.
    judged = cache(verdict)

    def is_misjudged() -> bool:
        wins = np.cumsum(draw.random(300) < 0.5)
        return any(judged(count - won, won).better is not None for count, won in enumerate(wins.tolist(), start=1))

    # The promise is one in twenty at most, however long they are watched.
    assert sum(is_misjudged() for _ in range(200)) <= 12
