"""A page of results is learned without items that were deleted since; other feedback about them is refused whole."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omdml import DCA, LOMDML, Qwise
from omdml.comparisons import conversion, preferred
from omdml.errors import FeedbackError
from omdml.feedback import Page, Quadruplet, Ranking, Triplet, encode
from omdml.streams.catalogues.changes.change import Change
from omdml.streams.memory_log import MemorySink
from omdml.streams.protocols.log import Partition, Record
from omdml.workers.configuration.specs import Specs
from omdml.workers.events.decoding import Batch
from omdml.workers.events.lookup import Lookup
from omdml.workers.events.validation import check, send_events
from tests.support import worlds
from tests.support.catalogues.changing import change, plain_catalogue
from tests.support.deep import examples
from tests.support.files.replays import LoggedShop, replayed
from tests.support.learning.drawn_pages import pages

GONE = ["i2", "i5", "i8"]
SHOWN = tuple(f"i{row}" for row in range(1, 9))
FEATURES = {
    "shape": [float(number) for number in range(9)],
    "noise": [float(number) for number in range(5)],
}


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    """The items of the world, of which some were deleted."""
    catalogue = plain_catalogue(tmp_path_factory.mktemp("gone") / "items")
    change(catalogue, *(Change(id=item, delete=True) for item in GONE))
    return catalogue


def page(**changes):
    return Page(model="shop", **{"query": "i0", "shown": SHOWN, "clicked": ("i4",), **changes})


def located(items, *events, learner=LOMDML):
    """The comparisons that are learned of these events, as ids, and the refusals."""
    batch, convert = Batch(), conversion(learner.accepts)
    for offset, event in enumerate(events):
        record = Record(Partition("t", 0), offset, encode(event), None, None, ())
        batch.add(record, event, convert(event))
    result, refused = Lookup("shop", learner, items).locate(batch)
    assert result.ends.tolist() == [sum(result.count(i) for i in range(n + 1)) for n in range(len(result.ends))]
    assert len(result.events.ids) == result.compared.size == sum(result.events.id_counts)
    return result.events.ids, refused


def triples(event, without=GONE):
    """The triplets of a page that name none of these items, by the rule of whole pages."""
    return [item for near, far in preferred(event) for item in (event.query, near, far)
            if not {event.query, near, far} & set(without)]  # fmt: skip


def test_what_is_left_of_a_page_is_learned_as_it_was_seen(items):
    learned, refused = located(items, page())
    # i2 stood above the clicked item, i5 and i8 in the lower half of what people saw.
    assert learned == ["i0", "i4", "i1", "i0", "i4", "i3", "i0", "i4", "i6", "i0", "i4", "i7"]
    assert refused == []


def test_what_is_left_of_a_page_counts_as_one_opinion(items):
    batch, event = Batch(), page()
    batch.add(Record(Partition("t", 0), 0, encode(event), None, None, ()), event, conversion(DCA.accepts)(event))
    result, _ = Lookup("shop", DCA, items).locate(batch)
    # The comparisons with items that are gone do not count.
    assert result.columns["weight"].tolist() == [0.5] * 4


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"query": "i2"}, "i2"),
        ({"clicked": ("i2", "i5")}, "i2"),
        ({"shown": ("i4", "i2"), "clicked": ("i4",)}, "i2"),
    ],
    ids=["the query", "everything clicked", "everything passed over"],
)
def test_a_page_is_refused_if_nothing_is_left_of_it(items, changes, named):
    learned, (refusal,) = located(items, page(**changes))
    assert learned == []
    assert refusal.error.reason == "unknown_item"
    assert f"item {named!r} is not in the catalogue" in str(refusal.error)


def test_vectors_of_its_own_bring_a_deleted_item_back_for_one_page(items):
    event = page(features={"i2": FEATURES})
    assert located(items, event) == (triples(event, ["i5", "i8"]), [])


@pytest.mark.parametrize(
    ("event", "learner"),
    [
        (Triplet(model="shop", query="i0", relevant="i1", irrelevant="i2"), LOMDML),
        (Ranking(model="shop", query="i0", relevant=("i1", "i2"), irrelevant=("i3",)), LOMDML),
        (Quadruplet(model="shop", near=("i0", "i1"), far=("i0", "i2")), Qwise),
    ],
    ids=lambda value: getattr(value, "__name__", None) or type(value).__name__,
)
def test_what_a_sender_named_on_purpose_is_refused_whole(items, event, learner):
    learned, (refusal,) = located(items, event, learner=learner)
    assert (learned, refusal.error.reason) == ([], "unknown_item")


def test_learners_of_quadruplets_learn_what_is_left_of_a_page_too(items):
    learned, refused = located(items, page(), learner=Qwise)
    assert refused == []
    assert learned[:4] == ["i0", "i4", "i0", "i1"]
    assert len(learned) == 16


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(pages(), min_size=1, max_size=6))
def test_any_pages_are_learned_alike_one_by_one_and_together(items, drawn):
    # "q" is no item of the world.
    events = [
        page(query="i0", shown=drawing.shown, clicked=drawing.clicked, positions=drawing.positions) for drawing in drawn
    ]
    events = [event for event in events if preferred(event)]
    without = [*GONE, "q"]
    together, refused = located(items, *events)
    assert together == [item for event in events for item in triples(event, without)]
    assert [refusal.record.offset for refusal in refused] == [
        number for number, event in enumerate(events) if not triples(event, without)
    ]
    assert together == [item for event in events for item in located(items, event)[0]]


def test_node_and_feed_accept_the_pages_that_a_worker_would_learn(items, tmp_path):
    specs = Specs(worlds.World(tmp_path).configuration, {"items": items})
    check(page(), specs)
    with pytest.raises(FeedbackError, match="item 'i2' is not in the catalogue"):
        check(page(query="i2"), specs)
    sink = MemorySink(worlds.World(tmp_path / "other").log)
    sent = send_events([(1, encode(page())), (2, encode(page(clicked=("i2",))))], specs, sink)
    assert (sent.accepted.total(), [refused.error.reason for refused in sent.refused]) == (1, ["unknown_item"])


def test_a_replay_of_such_pages_learns_the_same_bytes(tmp_path):
    shop = LoggedShop(tmp_path, models={"shop": {"learner": "lomdml", "rank": 2}}, guard="true")
    shop.catalogue = plain_catalogue(tmp_path / "plain")
    change(shop.catalogue, *(Change(id=item, delete=True) for item in GONE))
    clicks = [page(query=f"i{20 + number}", clicked=(SHOWN[number % 8],)) for number in range(60)]
    shop.tell(*map(encode, clicks))
    checkpoint = shop.worked()
    assert len(worlds.letters(shop)) == sum(not triples(event) for event in clicks) > 0
    model = replayed(shop)
    assert model.learner.to_bytes() == checkpoint.state
    # The same holds for other batches.
    alone = [[record] for records in shop.log_read() for record in records]
    assert replayed(shop, log=alone).learner.to_bytes() == checkpoint.state
