"""Feedback: every kind travels, everything else is refused with a reason."""

from __future__ import annotations

import contextlib
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import client, feedback
from omdml.builders import from_labels
from omdml.comparisons import conversion, triplets
from omdml.errors import FeedbackError
from omdml.learners import LEARNERS
from omdml.letter_reasons import REASONS
from omdml.workers.events.decoding import compared_at_most
from tests.support.deep import examples
from tests.support.processes import ROOT

EVENTS = [
    feedback.Triplet(model="shop", query="a", relevant="b", irrelevant="c", at=1790000000.25),
    feedback.Ranking(model="shop", query="a", relevant=("b", "c"), irrelevant=("d",)),
    feedback.Pair(model="faces", task="identity", left="a", right="b", similar=True),
    feedback.Quadruplet(model="pages", near=("a", "b"), far=("c", "d"), margin=0.5),
    feedback.SetJudgement(model="photos", query=("a", "b"), relevant=("c",), irrelevant=("d",)),
    feedback.Page(model="shop", query="a", shown=("b", "c"), clicked=("c",), positions=(2, 1)),
    feedback.Triplet(model="shop", query="a", relevant="b", irrelevant="c", features={"a": {"color": [1.0, 2.0]}}),
]
EVENTS += [msgspec.structs.replace(event, id="request-7/1") for event in EVENTS]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("content_type", ["application/json", feedback.MESSAGEPACK])
def test_every_kind_survives_the_wire(event, content_type):
    assert feedback.decode(feedback.encode(event, content_type), content_type) == event


def test_every_kind_is_among_these_events():
    assert set(feedback.KINDS) == {type(event) for event in EVENTS}


def test_the_client_exports_every_kind():
    names = {kind.__name__ for kind in feedback.KINDS}
    assert names - set(client.__all__) == set(), "in omdml/client/__init__.py"


def test_a_field_has_the_same_name_in_python_and_on_the_wire():
    """Checks and messages take the names of Python."""
    renamed = [kind for kind in feedback.KINDS if kind.__struct_fields__ != kind.__struct_encode_fields__]
    assert renamed == []


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_makes_no_more_comparisons_than_workers_expect(event):
    """Before they decode an event, workers expect what ``compared_at_most`` says of its size."""
    kind = type(event)
    # Each list has fewer items than the one before it: not all that is shown on a page is clicked.
    lists = {field: tuple(f"{i:03}" for i in range(20 // n)) for n, field in enumerate(feedback.LISTS.get(kind, ()), 1)}
    unset = dict.fromkeys(feedback.fields_of(kind, type(None)))
    longer, counts = msgspec.structs.replace(event, **unset, **lists), []
    for learner in LEARNERS.values():
        with contextlib.suppress(FeedbackError):
            ids = conversion(learner.accepts)(longer)
            counts.append(len(ids) // learner.width if learner.width else 1)
    assert 0 < max(counts) <= compared_at_most(len(feedback.encode(longer)))


TRIPLET = {"type": "triplet", "model": "shop", "query": "a", "relevant": "b", "irrelevant": "c"}


def changed(**fields):
    return json.dumps({**TRIPLET, **fields}).encode()


@pytest.mark.parametrize(
    ("payload", "reason", "message"),
    [
        (b"nonsense", "not_json", "not application/json"),
        (b"\xff\xfe", "not_json", "not application/json"),
        (b"[]", "invalid", "event: expected an object, got a list"),
        (b"{}", "invalid", "event: it has no field 'type', which is needed, expected one of triplet, ranking"),
        (
            json.dumps({**TRIPLET, "type": "click"}).encode(),
            "invalid",
            "event: field 'type': 'click' is unknown; expected one of triplet, ranking",
        ),
        (changed(query=None), "invalid", "event: field 'query': expected text, got nothing"),
        (changed(query=""), "invalid", "event: field 'query': expected text of at least 1 character, got 0"),
        (changed(model="m" * 600), "invalid", "event: field 'model': expected text of at most 512 characters, got 600"),
        (changed(id=""), "invalid", "event: field 'id': expected text of at least 1 character, got 0"),
        (changed(id="i" * 129), "invalid", "event: field 'id': expected text of at most 128 characters, got 129"),
        (changed(id=7), "invalid", "event: field 'id': expected text or nothing, got a whole number 7"),
        (
            changed(features={"a": {"color": ["x"]}}),
            "invalid",
            "event: in field 'features': expected a number, got text",
        ),
        (json.dumps(TRIPLET).replace('"c"', "NaN").encode(), "not_json", "got 'NaN}': JSON has no NaN and no Infinity"),
        (json.dumps({**TRIPLET, "type": "triplt"}).encode(), "invalid", "'triplt' is unknown: did you mean 'triplet'?"),
        (
            json.dumps(TRIPLET).replace('"relevant"', '"relevent"').encode(),
            "invalid",
            "event: it has no field 'relevant', but 'relevent': did you mean 'relevant'?",
        ),
        (
            b'{"type":"triplet","model":"shop","query":"a","irrelevant":"c"}',
            "invalid",
            "event: it has no field 'relevant', which is needed: add it",
        ),
        (b'{"type":"ranking","model":"m","query":"a","relevant":["b"],"irrelevant":[]}', "empty_list", "irrelevant"),
        (b" " * ((1 << 20) + 1), "oversize", "1048577 bytes"),
    ],
)
def test_what_is_no_event_is_refused_with_its_reason(payload, reason, message):
    with pytest.raises(FeedbackError) as caught:
        feedback.decode(payload)
    assert caught.value.reason == reason
    assert message in str(caught.value)
    assert reason in REASONS


@pytest.mark.parametrize("field", ["type", "model"])
def test_a_refusal_quotes_a_long_value_in_a_few_characters(field):
    with pytest.raises(FeedbackError, match=f"event: field '{field}': ") as caught:
        feedback.decode(json.dumps({**TRIPLET, field: "v" * 5000}).encode())
    assert len(str(caught.value)) < 400


def test_messagepack_may_not_smuggle_in_what_is_not_finite():
    quadruplet = {"type": "quadruplet", "model": "m", "near": ["a", "b"], "far": ["c", "d"]}
    for number in (float("nan"), float("inf")):
        for event, field in ((TRIPLET, "at"), (quadruplet, "margin")):
            with pytest.raises(FeedbackError, match=field):
                feedback.decode(msgspec.msgpack.encode({**event, field: number}), feedback.MESSAGEPACK)


def test_lists_and_numbers_of_a_kind_are_known_by_their_types():
    class Rated(feedback.Feedback, frozen=True, kw_only=True, tag="rated", gc=False):
        items: feedback.Items
        others: feedback.Items | None = None
        pair: tuple[feedback.Id, feedback.Id]
        stars: float | None = None
        rank: int

    assert feedback.fields_of(Rated, tuple[str, ...]) == ("items", "others")
    assert feedback.fields_of(Rated, float) == ("stars",)
    assert feedback.LISTS[feedback.Page] == ("shown", "clicked")
    assert list(feedback.NUMBERS.items()) == [(feedback.Quadruplet, ("margin",))]


@settings(max_examples=examples(150))
@given(st.binary(max_size=200), st.sampled_from(["application/json", feedback.MESSAGEPACK]))
def test_random_bytes_raise_nothing_but_our_error(payload, content_type):
    reasons = []
    try:
        feedback.decode(payload, content_type)
    except FeedbackError as error:
        reasons.append(error.reason)
    assert set(reasons) <= set(REASONS)


def test_a_ranking_is_its_triplets_relevant_major():
    event = feedback.Ranking(model="m", query="q", relevant=("r", "s"), irrelevant=("x", "y"))
    assert triplets(event, {"triplet"}) == ["q", "r", "x", "q", "r", "y", "q", "s", "x", "q", "s", "y"]


def test_a_kind_that_the_learner_does_not_take_is_refused():
    with pytest.raises(FeedbackError, match="learns triplets, got a pair") as caught:
        triplets(EVENTS[2], frozenset({"triplet"}))
    assert caught.value.reason == "not_accepted"


def test_triplets_from_labels_hold_to_the_labels_and_to_the_rows_asked_for():
    labels, among = [0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 3, 4, 5, 6]
    rows = from_labels(labels, 500, seed=1, among=among)
    assert set(rows.ravel()) == set(among)
    assert all(q != r and labels[q] == labels[r] != labels[s] for q, r, s in rows)


def test_labels_without_two_of_each_are_refused():
    with pytest.raises(FeedbackError, match="the rarest with 1"):
        from_labels([0, 0, 1], 5, seed=0)


@pytest.mark.parametrize(("field", "most"), [("id", 128), ("user", 200), ("query", 512)])
def test_ids_are_texts_of_any_characters_up_to_a_documented_length(field, most):
    described = (ROOT / "docs" / "feedback.md").read_text().partition("### The form of ids")[2].partition("## ")[0]
    (row,) = [line for line in described.splitlines() if line.startswith("|") and f"`{field}`" in line.split("|")[1]]
    assert f" 1 to {most}, any." in row
    for value in (" a ", "\n\0\u2028", "\U0001f600" * most, "4f9c2c1e-8a52-4b86-9d3c-0a4f6f1c5f7e"):
        assert getattr(feedback.decode(changed(**{field: value})), field) == value
    for value in ("", "x" * (most + 1), 7):
        with pytest.raises(FeedbackError, match=f"event: field '{field}': expected text"):
            feedback.decode(changed(**{field: value}))
