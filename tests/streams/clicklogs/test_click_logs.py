"""Click logs of each published format become pages, in bounded memory. What is left out is counted.

published/ holds the examples of o19s/ubi and of metarank/metarank themselves.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from omdml.errors import ConfigurationError, FeedbackError
from omdml.feedback import MAX_SHOWN, Page, decode
from omdml.streams.clicklogs import csv_rows, json_lines
from omdml.streams.clicklogs.fields import Fields, seconds
from omdml.streams.clicklogs.joining import JoinedPages
from tests.support.files.click_logs import CSV, METARANK, SEEN, UBI
from tests.support.pages.documents import block_that_begins, read


def numbered(text):
    return enumerate((line.encode() for line in text.splitlines(keepends=True)), start=1)


def joined(kind, text, *changed, actions=("click",), model="shop", **options):
    """What a click log becomes: pages, errors by line, and what was left out."""
    if kind == "csv":
        entries = csv_rows.entries(numbered(text), Fields(csv_rows.CSV, changed))
    else:
        fields, read = {
            "ubi": (json_lines.UBI, json_lines.ubi),
            "metarank": (json_lines.METARANK, json_lines.metarank),
        }[kind]
        entries = json_lines.entries(numbered(text), read, Fields(fields, changed), actions)
    log = JoinedPages(entries, model, **options)
    lines = list(log.lines())
    pages = [decode(line) for _, line in lines if not isinstance(line, FeedbackError)]
    return pages, [(number, str(line)) for number, line in lines if isinstance(line, FeedbackError)], dict(log.left_out)


def test_queries_and_events_of_user_behavior_insights_become_pages():
    pages, bad, left_out = joined("ubi", UBI, "query=query_attributes.item")
    assert pages == [Page(**SEEN, id="q-1", at=1795365131.0)]
    assert bad == []
    assert left_out == {"events of other actions": 2, "pages without a click": 1}


def test_another_action_can_be_the_click_and_ids_may_be_numbers():
    text = UBI.replace('"i9"', '"9"')
    pages, _, _ = joined("ubi", text, "query=query_attributes.item", actions=("click", "add_to_cart"))
    assert pages[0].clicked == ("i7", "9")


def test_rankings_and_interactions_of_metarank_become_pages():
    pages, bad, left_out = joined("metarank", METARANK)
    assert pages == [Page(**SEEN, id="r-1", at=1790000001.0)]
    assert bad == []
    assert left_out == {
        "events that are no ranking or interaction": 1,
        "clicks that name no ranking": 1,
        "events of other actions": 1,
    }


def test_whose_page_it_was_is_taken_over_only_if_somebody_says_so():
    for kind, text, field, user in (
        ("ubi", UBI, "user=client_id", "c-1"),
        ("metarank", METARANK, "user=user", "u-1"),
        ("csv", CSV, "user=shop", "north"),
    ):
        changed = ["query=query_attributes.item"] if kind == "ubi" else []
        assert {page.user for page in joined(kind, text, *changed)[0]} == {None}
        assert joined(kind, text, *changed, field)[0][0].user == user


def test_rows_of_csv_become_pages_in_the_order_of_their_positions():
    pages, bad, left_out = joined("csv", CSV, "model=shop")
    shown = {"shown": ("i7", "i3", "i9", "i12"), "positions": (2, 1, 3, 4)}
    assert pages == [Page(**{**SEEN, **shown, "model": "north"}, id="p-1", at=1795365131.0)]
    assert (bad, left_out) == ([], {})


def test_the_csv_that_the_documents_show_becomes_a_page():
    pages, bad, left_out = joined("csv", block_that_begins(read("docs/feedback.md"), "page,query"))
    (page,) = pages
    assert (page.query, page.shown, page.clicked) == ("red-shirt", ("blue-shirt", "red-cup"), ("red-cup",))
    assert (bad, left_out) == ([], {})


def test_a_part_may_be_the_same_for_all_pages():
    pages, _, _ = joined("metarank", METARANK, "model==south", "query==i5", model=None)
    assert [(page.model, page.query) for page in pages] == [("south", "i5")]


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (
            "ubi",
            '{"query_id":"q","query_response_hit_ids":["a"]}',
            "`user_query` is missing: if the query is in another field, say so with --field query=PATH",
        ),
        ("ubi", '{"user_query":"i0","query_response_hit_ids":["a"]}', "`query_id` is missing"),
        ("ubi", '{"query_id":"q","user_query":"i0","query_response_hit_ids":"a"}', "expected a list of items"),
        ("ubi", '{"query_id":"q","user_query":"i0","query_response_hit_ids":[true]}', "expected an id"),
        ("ubi", '{"action_name":"click","query_id":"q"}', "`event_attributes.object.object_id` is missing"),
        ("ubi", '{"query_id":"q","user_query":"i0","timestamp":"yesterday"}', "expected a time like"),
        ("ubi", '{"query_id":"' + "q" * 513 + '","user_query":"i0"}', "513 characters, expected an id of 512"),
        ("ubi", "{", "not JSON"),
        ("ubi", '{"query_id":' + "9" * 5000 + ',"user_query":"i0"}', "not JSON"),
        ("ubi", "[1]", "expected a JSON object"),
        ("ubi", "[" * 100_000, "not JSON"),
        ("metarank", '{"event":"ranking","id":"r","fields":[],"items":[]}', "`fields.query` is missing"),
        ("metarank", '{"event":"ranking","id":"r","items":[{}]}', "`items.id` is None, expected an id"),
        ("metarank", '{"event":"interaction","ranking":"r","item":"i"}', "`type` is missing"),
        ("csv", CSV + "p-2,i0\n", "2 cells, expected 7 as in the header"),
        ("csv", CSV + "p-2,i0,i1,1,maybe,north,\n", "`clicked` is 'maybe', expected 1 or 0"),
        ("csv", CSV + "p-2,i0,i1,first,1,north,\n", "`position` is 'first', expected a rank"),
        ("csv", CSV + "p-2,i0,i1," + "9" * 500 + ",1,north,\n", "expected a rank"),
        ("csv", CSV + 'p-2,i0,i1,1,"1"x,north,\n', "not valid CSV"),
        ("csv", CSV + "p-2,i0,i1,1,1,north,\np-2,i0,i2,1,0,north,\n", "expected a different rank for each item"),
        ("csv", CSV + "p-2,i0,i1,1,1,north,\np-2,i0,i2,,0,north,\n", "expected a different rank for each item"),
    ],
)
def test_a_record_that_cannot_be_read_is_refused_and_the_rest_goes_on(kind, text, message):
    pages, bad, _ = joined(kind, text, *(["model=shop"] if kind == "csv" else []))
    assert [message in error for _, error in bad] == [True], bad
    assert len(pages) == (kind == "csv")


def test_a_quote_that_is_not_closed_is_refused_where_it_stands():
    text = f'{CSV}p-2,i0,"i7,1,1,north,\np-3,i0,i7,1,1,north,\np-3,i0,i9,2,0,north,\n'
    pages, bad, _ = joined("csv", text, "model=shop")
    assert [page.id for page in pages] == ["p-1"]
    (refused,) = bad
    assert refused == (
        6,
        "not valid CSV: unexpected end of data: the row goes on to line 8, as if a quote in it is not closed",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"type":"triplet","model":"shop"}\n', "',' expected after '\"'"),
        ("x" * 200_000 + "\n", "larger than field limit"),
        ('page,"query\n', "unexpected end of data"),
    ],
)
def test_a_csv_whose_first_line_is_no_csv_is_refused_as_a_whole(text, message):
    with pytest.raises(FeedbackError, match=r"the first line is not valid CSV \(.*" + message):
        joined("csv", text)


def test_a_csv_without_a_column_that_it_needs_is_refused_as_a_whole():
    with pytest.raises(FeedbackError, match=r"no column 'clicked', got 'page, query, item'"):
        joined("csv", "page,query,item\n1,2,3\n")


def test_a_field_that_the_format_does_not_have_is_refused():
    for text in ("color=x", "query", "query="):
        with pytest.raises(ConfigurationError, match="expected PART=PATH"):
            Fields(json_lines.UBI, [text])


def test_pages_of_no_model_are_refused_if_several_are_configured():
    pages, bad, _ = joined("metarank", METARANK, model=None)
    assert pages == []
    assert ["--field model==NAME" in error for _, error in bad] == [True]


def test_times_are_read_as_the_formats_write_them():
    assert seconds("2026-11-22T16:32:11Z", "at") == seconds("2026-11-22T17:32:11+01:00", "at") == 1795365131.0
    assert seconds("2026-11-22T16:32:11", "at") == seconds("1795365131000", "at") == seconds(1795365131000, "at")
    assert seconds(None, "at") is None


def ranking(number, items=("i1", "i2", "i3")):
    fields = [{"name": "query", "value": "i0"}]
    return json.dumps({"event": "ranking", "id": f"r{number}", "fields": fields, "items": [{"id": i} for i in items]})


def interaction(number, item="i2"):
    return json.dumps({"event": "interaction", "ranking": f"r{number}", "type": "click", "item": item})


def test_a_log_of_any_length_holds_few_pages_open_and_counts_what_it_lost():
    # Given clicks that come up to 30 pages after their page, and few pages held open
    draw, late, lines = random.Random(0), {}, []
    for number in range(2_000):
        lines += [ranking(number), *late.pop(number, [])]
        late.setdefault(number + draw.randrange(1, 31), []).append(interaction(number))
    lines += [line for waiting in late.values() for line in waiting]
    # When the log is read with room for all of them, and for fewer
    for room, lost in ((31, 0), (10, 1)):
        entries = json_lines.entries(
            numbered("\n".join(lines)), json_lines.metarank, Fields(json_lines.METARANK), {"click"}
        )
        log, most, sent = JoinedPages(entries, "shop", room), 0, []
        for number, line in log.lines():
            sent.append((number, decode(line).id))
            most = max(most, len(log._open))
        # Then never more than that many are open, pages come in the order of the log, and none is lost without a count
        assert most <= room
        assert sent == sorted(sent)
        gone = log.left_out[f"clicks on a page that is not among the last {room:,}"]
        assert len(sent) + gone == 2_000
        assert (gone > 0) == lost


def test_items_of_a_page_are_bounded_too():
    many = [f"i{n}" for n in range(MAX_SHOWN + 7)]
    pages, _, left_out = joined("metarank", "\n".join([ranking(1, many), interaction(1, "i1"), interaction(1, "nope")]))
    assert len(pages[0].shown) == MAX_SHOWN
    assert left_out == {
        f"items after the first {MAX_SHOWN:,} of a page": 7,
        "clicks on items that their page did not show": 1,
    }


@pytest.mark.parametrize(
    ("later", "changed", "message"),
    [
        ("1,i5,i9,2,1,north,", ["model=shop"], "its query is 'i0' in one record and 'i5' in another"),
        ("1,i0,i9,2,1,south,", ["model=shop"], "its model is 'north' in one record and 'south' in another"),
        ("1,i0,i9,2,1,south,", ["user=shop"], "its user is 'north' in one record and 'south' in another"),
    ],
)
def test_two_pages_of_one_name_are_refused_and_do_not_share_their_clicks(later, changed, message):
    pages, bad, _ = joined("csv", f"{CSV}1,i0,i7,1,0,north,\n{later}\n", *changed)
    assert [page.id for page in pages] == ["p-1"]
    assert [message in error for _, error in bad] == [True], bad


def test_a_user_whom_only_a_later_row_of_the_page_names_is_taken_over():
    pages, _, _ = joined("csv", f"{CSV}p-2,i0,i7,1,0,,\np-2,i0,i9,2,1,north,\n", "user=shop")
    assert [page.user for page in pages] == ["north", "north"]


def test_a_page_on_which_everything_was_clicked_is_left_out_and_counted():
    lines = [ranking(1, ["i1"]), interaction(1, "i1")]
    assert joined("metarank", "\n".join(lines)) == ([], [], {"pages on which nothing was passed over": 1})


def test_the_same_log_gives_the_same_ids_so_that_it_teaches_once():
    long = METARANK.replace("r-1", "r" * 300)
    ids = [page.id for _ in range(2) for page in joined("metarank", long)[0]]
    assert ids[0] == ids[1]
    assert len(ids[0]) <= 128


def published(name):
    return (Path(__file__).parent / "published" / name).read_text()


def test_the_published_examples_of_metarank_become_a_page():
    pages, bad, left_out = joined("metarank", published("metarank.jsonl"), "user=user", actions=("purchase",))
    (page,) = pages
    assert (page.query, page.shown, page.clicked) == ("cat", ("item3", "item1", "item2"), ("item1",))
    assert (page.id, page.user, page.at) == ("81f46c34-a4bb-469c-8708-f8127cd67d27", "user1", 1599391467.0)
    assert (bad, left_out) == ([], {"events that are no ranking or interaction": 2})


def test_the_published_examples_of_user_behavior_insights_become_a_page():
    query = json.loads(published("ubi.jsonl").splitlines()[0])["_source"]
    assert query["query_response_object_ids"] == ["9"]
    click = {"action_name": "click", "query_id": query["query_id"], "event_attributes": {"object": {"object_id": "9"}}}
    # The example has one hit, and a page of one item says nothing.
    text = published("ubi.jsonl").replace('["9"]', '["4", "9"]') + json.dumps(click)
    # Newer releases call this field query_response_hit_ids.
    pages, bad, left_out = joined("ubi", text, "shown=query_response_object_ids")
    (page,) = pages
    assert (page.id, page.query, page.shown, page.clicked) == (query["query_id"], "toner", ("4", "9"), ("9",))
    assert (page.at, bad, left_out) == (1716408298.072, [], {"events of other actions": 1})
