"""A node goes on while its catalogue changes: items come, or another generation takes its place."""

from __future__ import annotations

import pytest
import structlog

from omdml.errors import ConfigurationError, FeedbackError
from omdml.feedback import decode
from omdml.streams.catalogues.building.build import add_items, build_catalogue
from tests.support.shops import Shop, asking, refused
from tests.support.worlds import events, items


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def replaced(shop):
    """Another generation in the catalogue's place."""
    return build_catalogue(shop.catalogue.path, items(seed=1)[0], replace=True)


def test_a_node_whose_catalogue_was_replaced_goes_on_with_the_old_one(shop):
    before = shop.catalogue.generation
    with structlog.testing.capture_logs() as logs, shop.serving(catalogues=shop.current.catalogue) as node:
        replaced(shop)
        with asking(node) as client:
            for event in events(5):
                assert client.post("/feedback", content=event).status_code == 202
            unknown = next(events(1)).replace(b'"query":"i', b'"query":"nope')
            assert "'nope" in refused(client.post("/feedback", content=unknown), 400, "unknown_item")
            assert shop.current.catalogue("shop").generation == before
            assert len(client.get("/search?id=i5").json()["items"]) == 10
    (line,) = [entry for entry in logs if entry["event"] == "catalogue_not_refreshed"]
    assert "restart the node" in line["hint"]


def test_a_snapshot_of_another_generation_is_refused_once_and_says_to_restart(shop):
    with structlog.testing.capture_logs() as logs, shop.serving(catalogues=shop.current.catalogue) as node:
        node._follower.close()
        shop.learn()
        shop.publish(generation=replaced(shop).generation)
        for _ in range(3):
            node._refresher.refresh("shop")
    (line,) = [entry for entry in logs if entry["event"] == "snapshot_refused"]
    assert "restart the node" in line["error"]


def test_what_keeps_a_live_view_from_taking_items_in_is_reported_once(shop):
    with structlog.testing.capture_logs() as logs, shop.serving() as node:
        node._follower.close()
        shop.catalogue = replaced(shop)
        for _ in range(3):
            assert node._refresher.refresh("shop").snapshot.version == 0
    assert [entry["event"] for entry in logs].count("snapshot_refused") == 1


def test_feedback_on_an_item_just_added_is_taken_without_a_poll(shop):
    event = decode(b'{"type":"triplet","model":"shop","query":"new","relevant":"i1","irrelevant":"i2"}')
    with pytest.raises(FeedbackError, match="'new'"):
        shop.current.check(event)
    add_items(shop.catalogue.path, {name: matrix[:1] for name, matrix in items()[0].items()}, ids=["new"])
    shop.current.check(event)


def test_an_unknown_model_has_no_catalogue(shop):
    with pytest.raises(ConfigurationError, match="'other'"):
        shop.current.catalogue("other")
