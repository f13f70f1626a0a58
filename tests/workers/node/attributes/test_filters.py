"""Attributes and the language of filters."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from omdml.errors import CatalogueError
from omdml.workers.node.attributes import followed
from omdml.workers.node.attributes.columns import Dates, Flags, Lists, Numbers, Texts
from omdml.workers.node.attributes.filter_schema import FILTER as FILTER_SCHEMA
from omdml.workers.node.attributes.filter_schema import SCHEMAS
from omdml.workers.node.attributes.filters import WORDS
from omdml.workers.node.attributes.followed import FollowedAttributes
from omdml.workers.node.attributes.table import Attributes, read_attributes
from omdml.workers.node.http.openapi import openapi
from omdml.workers.node.searching.options import SearchError
from tests.naive.filters import matches
from tests.support.deep import examples
from tests.support.processes import ROOT

PRICES, BRANDS, TAGS = (-1.5, 0, 3, 9.99, 20), ("", "acme", "ömega", "zeta"), ("red", "blue", "small")
# The second and the third are the same instant.
DATES = ("2026-11-23", "2026-11-24", "2026-11-24T01:00:00+01:00", "2026-11-24T10:15:30.5Z", "2026-11-24T09:00-05:00")
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "price": st.sampled_from(PRICES),
        "brand": st.sampled_from(BRANDS),
        "sale": st.booleans(),
        "tags": st.lists(st.sampled_from(TAGS), max_size=3),
        "since": st.sampled_from(DATES),
    },
)
BOUNDS = st.sampled_from(("eq", "ne", "lt", "lte", "gt", "gte"))


def operators(values, *others):
    """Objects of operators over these values."""
    compared = st.dictionaries(BOUNDS, st.sampled_from(values), min_size=1, max_size=2)
    return st.one_of(
        st.sampled_from(values),
        compared,
        st.fixed_dictionaries({"in": st.lists(st.sampled_from(values), max_size=3)}),
        st.fixed_dictionaries({"exists": st.booleans()}),
    )


CONDITION = st.fixed_dictionaries(
    {},
    optional={
        "price": operators((*PRICES, 5)),
        "brand": operators((*BRANDS, "b", "zz")),
        "since": operators((*DATES, "2026-11-24T00:00", "2030-01-01")),
        "sale": st.one_of(
            st.booleans(), st.dictionaries(st.sampled_from(("eq", "ne", "exists")), st.booleans(), min_size=1)
        ),
        "tags": st.one_of(
            st.sampled_from((*TAGS, "none")),
            st.fixed_dictionaries({"has": st.lists(st.sampled_from((*TAGS, "none")), max_size=2)}),
            st.fixed_dictionaries({"exists": st.booleans()}),
        ),
    },
)
FILTER = st.recursive(
    CONDITION,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"all": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"any": st.lists(inner, min_size=1, max_size=3)}),
    ),
    max_leaves=5,
)


def lines(items):
    """A file of attributes, in its lines."""
    return [json.dumps({"id": name, **item}).encode() for name, item in items.items()]


class Ids:
    """A catalogue, as far as attributes look at one."""

    def __init__(self, *ids):
        self.ids = ids


# The first value of an attribute decides its kind, so one item has a value of each.
WHOLE = {"price": 3, "brand": "acme", "sale": True, "tags": ["red"], "since": "2026-11-24"}


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(ITEM, max_size=8), FILTER)
def test_a_filter_matches_what_its_literal_twin_matches(items, condition):
    named = {"whole": WHOLE, **{f"i{number}": item for number, item in enumerate(items)}}
    # The catalogue has another order, and an item of which nothing is known.
    ids = [*reversed(named), "unknown"]
    result = Attributes(lines(named), "file").mask(condition, Ids(*ids), len(ids))
    assert result.tolist() == [matches(named.get(item, {}), condition) for item in ids]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(ITEM, max_size=8))
def test_attributes_come_back_as_they_were_written(items):
    named = {"whole": WHOLE, **{f"i{number}": item for number, item in enumerate(items)}}
    table = Attributes(lines(named), "file")
    assert table.of([*named, "unknown"], list(WHOLE)) == [*named.values(), {}]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"prize": 3}, "filter.prize: no attribute 'prize': did you mean 'price'"),
        ({"price": "cheap"}, "filter.price: got 'cheap', expected a number"),
        ({"brand": ["a", "b"]}, r'filter.brand: got .*, expected a text; {"in": \[\.\.\.\]} asks for one of several$'),
        ({"price": True}, "filter.price: got True, expected a number"),
        ({"price": 10**400}, "filter.price: got 1000.*, expected a number"),
        ({"price": {"lt": None}}, "filter.price.lt: got None, expected a number"),
        ({"price": {"has": 3}}, "filter.price.has: no operator 'has' for this attribute, expected eq"),
        ({"price": {"in": 3}}, "filter.price.in: got 3, expected a list of numbers"),
        ({"brand": {"in": ["a", 3]}}, "filter.brand.in: got .*, expected a list of texts"),
        ({"sale": 1}, "filter.sale: got 1, expected true or false"),
        ({"since": {"lt": "soon"}}, "filter.since.lt: got 'soon', expected a date such as 2026-11-23"),
        ({"since": "2026"}, "filter.since: got '2026', expected a date"),
        ({"since": {"in": ["2026-11-23", "2026-02-30"]}}, "filter.since.in: got .*, expected a list of dates"),
        ({"tags": 3}, "filter.tags: got 3, expected a text, or a list of texts"),
        ({"any": []}, r"filter.any: got \[\], expected a list of at least one filter"),
        ({"all": [{}, {"any": [{"brand": 3}]}]}, r"filter.all\[1\].any\[0\].brand: got 3, expected a text"),
        ({"not": [1]}, r"filter.not: got \[1\], expected an object such as"),
        ({"price": {"in": list(range(1001))}}, "1,001 values, expected at most 1,000"),
        ({"all": [{"price": 1}] * 257}, "more than 256 conditions"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused_saying_where(condition, message):
    table = Attributes(lines({"whole": WHOLE}), "file")
    with pytest.raises(SearchError, match=message) as caught:
        table.mask(condition, Ids("whole"), 1)
    assert caught.value.reason == "bad_filter"


def fits_schema(condition):
    """Whether a filter fits the schema that the OpenAPI document has for it."""
    return Draft202012Validator({**FILTER_SCHEMA, "components": {"schemas": SCHEMAS}}).is_valid(condition)


@settings(max_examples=examples(30), deadline=None)
@given(FILTER)
def test_every_filter_fits_its_schema(condition):
    assert fits_schema(condition)


def test_the_schema_of_filters_names_all_operators_and_refuses_nonsense():
    for refused in (
        {"price": {"has": 3}},
        {"price": {"lt": None}},
        {"price": {"in": 3}},
        {"price": {"nosuch": 3}},
        {"tags": [3]},
        {"any": []},
        {"not": [1]},
        {"all": [{}, {"any": [{"brand": None}]}]},
        {"price": {"in": list(range(1001))}},
    ):
        assert not fits_schema(refused), refused
    kinds = (Numbers, Flags, Texts, Dates, Lists)
    assert set(SCHEMAS["Operators"]["properties"]) == {operator for kind in kinds for operator in kind.expected}
    assert set(SCHEMAS["Filter"]["properties"]) == set(WORDS)
    schemas = openapi()["components"]["schemas"]
    assert schemas["Search"]["properties"]["filter"]["anyOf"] == [FILTER_SCHEMA, {"type": "null"}]
    assert schemas.items() >= SCHEMAS.items()


def test_an_attribute_of_which_one_value_is_no_date_holds_texts():
    values = {"a": {"since": "2026-11-23"}, "b": {"since": "soon"}, "c": {"since": "2026-11-23T00:00"}}
    table = Attributes(lines(values), "file")
    assert table.mask({"since": "2026-11-23"}, Ids(*"abc"), 3).tolist() == [True, False, False]
    assert table.mask({"since": {"gt": "s"}}, Ids(*"abc"), 3).tolist() == [False, True, False]


def test_dates_are_compared_as_texts_if_changes_bring_values_that_are_no_dates():
    file = Attributes(lines({"a": {"since": "2026-11-23"}}), "file")
    changed = Attributes.of_items([("b", {"since": "soon"})])
    assert file.mask({"since": {"lt": "soon"}}, Ids("a"), 1, changed.columns).tolist() == [True]
    with pytest.raises(SearchError, match="expected a date"):
        file.mask({"since": {"lt": "soon"}}, Ids("a"), 1)


def test_a_filter_that_is_too_deep_is_refused():
    nested = {}
    for _ in range(20):
        nested = {"not": nested}
    with pytest.raises(SearchError, match="deeper than 16 filters within filters"):
        Attributes([], "file").mask(nested, Ids(), 0)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (b"[]", "file, line 2: .*expected a JSON object"),
        (b'{"id": 7}', "file, line 2: id is 7, expected a text"),
        (b'{"price": 7}', "file, line 2: id is None"),
        (b'{"id": "a"}', "file, line 2: item 'a' a second time"),
        (b'{"id": "b", "price": "7"}', "file, line 2: price is '7', expected a number, as in earlier lines"),
        (
            b'{"id": "b", "price": {"eur": 7}}',
            "file, line 2: one of its values: .*, got an object; expected a",
        ),
        (b'{"id": "b", "price": 1' + b"0" * 400 + b"}", "file, line 2: "),
        (b'{"id": "b", "any": 7}', "file, line 2: an attribute cannot be called 'any'"),
        (b'{"id": "\xff"}', "file, line 2: "),
        (b'{"id": "b", "x": "' + b"x" * (1 << 20) + b'"}', "file, line 2: .* bytes, expected at most"),
    ],
)
def test_a_line_that_is_wrong_is_named(second, message):
    with pytest.raises(CatalogueError, match=message):
        Attributes([b'{"id": "a", "price": 1}', second], "file")


def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(followed, "LOOK_S", 0.0)
    path = tmp_path / "attributes.jsonl"
    path.write_text('{"id": "a", "price": 1}\n')
    attributes = FollowedAttributes(str(path))
    assert attributes().of(["a"], ["price"]) == [{"price": 1}]
    path.write_text('{"id": "a", "price": 2.5}\n\n')
    assert attributes().of(["a"], ["price"]) == [{"price": 2.5}]
    path.write_text('{"id": "a", "price": ')
    assert attributes().of(["a"], ["price"]) == [{"price": 2.5}]
    path.unlink()
    assert attributes().of(["a"], ["price"]) == [{"price": 2.5}]
    with pytest.raises(CatalogueError, match=r"attributes cannot be read .*check the path"):
        read_attributes(str(path))


def test_the_examples_of_the_page_for_users_are_filters():
    text = (ROOT / "deploy" / "SEARCH.md").read_text()
    (examples,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    (items,) = re.findall(r"```\n(\{.*?)```", text, re.DOTALL)
    table = Attributes(items.encode().splitlines(), "SEARCH.md")
    filters = [json.loads(line) for line in examples.splitlines()]
    results = [table.mask(condition, Ids("17", "4"), 2).tolist() for condition in filters]
    assert results == [[True, False], [True, False], [True, False], [False, True]]
