"""A result page stands for the comparisons that its rule says, whatever else it holds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from omdml.comparisons import preferred, quadruplets, triplets
from omdml.errors import FeedbackError
from omdml.feedback import MAX_SHOWN, decode, encode
from omdml.letter_reasons import REASONS
from tests.naive.pages import preferred_one_by_one
from tests.support.deep import examples
from tests.support.learning.drawn_pages import pages

PAGE = {"type": "page", "model": "shop", "query": "q", "shown": ["a", "b", "c", "d", "e"], "clicked": ["c"]}


def pairs(**changes):
    return preferred(decode(json.dumps(PAGE | changes).encode()))


def test_a_clicked_item_is_preferred_to_those_above_it_and_to_the_lower_half():
    assert pairs() == [("c", "a"), ("c", "b"), ("c", "d"), ("c", "e")]
    assert pairs(clicked=["a"]) == [("a", "c"), ("a", "d"), ("a", "e")]
    assert pairs(shown=["a", "b"], clicked=["a"]) == [("a", "b")]
    assert pairs(shown=["a", "b"], clicked=["a", "b"]) == pairs(shown=["a"], clicked=["a"]) == []


def test_positions_say_the_order_in_which_people_see_the_items():
    shown, positions = ["e", "c", "a", "d", "b"], [25, 23, 21, 24, 22]
    assert pairs(shown=shown, positions=positions) == pairs()
    assert pairs(positions=[5, 4, 3, 2, 1]) == pairs(shown=["e", "d", "c", "b", "a"])


def test_the_query_among_its_own_results_is_left_out():
    assert pairs(shown=["q", "a", "b", "c", "d", "e"], clicked=["q", "c"]) == pairs()


def test_an_item_that_was_clicked_twice_counts_once():
    assert pairs(clicked=["c", "c"]) == pairs()


@settings(max_examples=examples(150))
@given(pages())
def test_every_page_stands_for_what_its_slow_twin_says(page):
    assert decode(encode(page)) == page
    expected = preferred_one_by_one(page)
    assert preferred(page) == expected
    if expected:
        named = [item for clicked, other in expected for item in ("q", clicked, other)]
        assert triplets(page, {"triplet"}) == named
        assert quadruplets(page, {"triplet", "quadruplet"})[:4] == ["q", named[1], "q", named[2]]
    else:
        with pytest.raises(FeedbackError) as caught:
            triplets(page, {"triplet"})
        assert caught.value.reason == "nothing_compared"


@pytest.mark.parametrize(
    ("changes", "reason", "message"),
    [
        ({"shown": []}, "empty_list", "`shown` is empty"),
        ({"clicked": []}, "empty_list", "`clicked` is empty"),
        ({"clicked": ["z"]}, "invalid", "`clicked` names 'z', which is not in `shown`"),
        ({"shown": ["a", "c", "a"]}, "invalid", "`shown` names 'a' twice"),
        ({"positions": [1, 2]}, "invalid", "2 `positions` of 5 shown items"),
        ({"positions": [1, 2, 3, 3, 5]}, "invalid", "`positions` has 3 twice"),
        ({"positions": [0, 1, 2, 3, 4]}, "invalid", "field 'positions[0]': expected a whole number >= 1, got 0"),
        (
            {"shown": [str(n) for n in range(MAX_SHOWN + 1)], "clicked": ["1"]},
            "invalid",
            "field 'shown': expected a list of at most 1,000 entries",
        ),
        ({"query": None}, "invalid", "field 'query': expected text, got nothing"),
    ],
)
def test_a_page_that_nobody_can_have_seen_is_refused_saying_why(changes, reason, message):
    with pytest.raises(FeedbackError) as caught:
        decode(json.dumps(PAGE | changes).encode())
    assert (caught.value.reason, message in str(caught.value)) == (reason, True), str(caught.value)
    assert reason in REASONS


def test_a_page_that_stands_for_too_much_is_refused():
    shown = [f"i{n}" for n in range(70)]
    page = decode(json.dumps(PAGE | {"shown": shown, "clicked": shown[1::2]}).encode())
    with pytest.raises(FeedbackError, match=r"page of .* comparisons, at most 1000") as caught:
        triplets(page, {"triplet"})
    assert caught.value.reason == "too_many"


def test_a_learner_of_pairs_takes_no_page():
    with pytest.raises(FeedbackError, match="learns pairs, got a page"):
        triplets(decode(json.dumps(PAGE).encode()), {"pair"})
