"""Versions to go back to: only what nodes can serve; and what a node serves if the newest is damaged."""

from __future__ import annotations

import httpx
import pytest
import structlog
from click.testing import CliRunner

from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers import cli
from omdml.workers.versions import moves
from omdml.workers.versions.targets import Unservable, since_reset
from tests.support.shops import Shop, asking, listening, refused
from tests.support.waiting import until, wait_until_ready

TOKEN = "0123456789abcdef-known"


@pytest.fixture(params=["memory", "directory"])
def shop(request, tmp_path):
    store = DirectoryStore(str(tmp_path / "state")) if request.param == "directory" else None
    return Shop(tmp_path, store=store)


def learned(shop, versions=3, **changes):
    """Publish ``versions`` versions; returns their numbers."""
    published = [shop.publish(**changes)]
    for _ in range(versions - 1):
        shop.learn()
        published.append(shop.publish(**changes))
    return published


def reset(shop):
    """Do what ``omdml models reset`` does: claim the model, publish version 0, and note it in the history."""
    version = shop.learner.version
    shop.epoch = shop.store.claim(shop.model).epoch
    shop.learner = type(shop.learner)(dims=dict(shop.catalogue.dims), rank=3)
    shop.learner.start(shop.catalogue.features)
    shop.publish()
    shop.store.note(shop.model, shop.epoch, "reset", f"was at version {version}")


@pytest.mark.parametrize("move", [moves.rollback, moves.pin])
def test_no_move_leads_to_another_generation_of_the_catalogue(shop, move):
    learned(shop, 2, generation="the-old-one")
    shop.learn()
    learned(shop, 2)
    before = shop.store.current("shop")
    with pytest.raises(Unservable, match=r"generation the-old-one.*no node could serve it; choose one of 40, 60"):
        move(shop.store, "shop", 20, kind=shop.catalogue)
    assert shop.store.current("shop") == before


@pytest.mark.parametrize("move", [moves.rollback, moves.pin])
def test_no_move_leads_behind_a_reset(shop, move):
    learned(shop)
    reset(shop)
    shop.learn()
    shop.publish()
    before = shop.store.current("shop")
    with pytest.raises(Unservable, match=r"version 40 was learned before the reset of .* choose one of 0, 20"):
        move(shop.store, "shop", 40, kind=shop.catalogue)
    assert shop.store.current("shop") == before
    assert move(shop.store, "shop", 0, kind=shop.catalogue).version == 0


def test_a_rollback_without_a_version_goes_no_further_back_than_the_reset(shop):
    learned(shop)
    reset(shop)
    with pytest.raises(moves.NotKept, match="this is the oldest"):
        moves.rollback(shop.store, "shop", kind=shop.catalogue)
    shop.learn()
    shop.publish()
    assert moves.rollback(shop.store, "shop", kind=shop.catalogue).version == 0


def test_a_rollback_without_a_version_passes_over_what_cannot_be_served(shop):
    learned(shop, 2)
    shop.learn()
    shop.publish(generation="another")
    shop.learn()
    damaged = shop.snapshot()
    shop.publish()
    shop.damage(damaged)
    shop.learn()
    shop.publish()
    assert moves.rollback(shop.store, "shop", kind=shop.catalogue).version == 20


def test_the_publication_of_a_reset_is_the_first_after_it(shop):
    learned(shop)
    reset(shop)
    assert [line["version"] for line in since_reset(shop.store.history("shop"))] == [0]
    assert since_reset([]) == []


def test_over_http_the_reason_is_reported_and_nothing_moves(tmp_path):
    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node, TOKEN) as server:
        headers = {"authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=server.url, headers=headers) as client:
            shop.learn()
            shop.publish(generation="the-old-one")
            shop.learn()
            shop.publish()
            for verb in ("rollback", "pin"):
                response = client.post(f"/models/shop/{verb}", json={"version": 20})
                assert "no node could serve it" in refused(response, 409, "unservable")
    assert shop.store.current("shop").version == 40
    assert not shop.store.current("shop").pinned


def test_on_the_command_line_the_reason_is_reported_and_nothing_moves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shop = Shop(tmp_path, store=DirectoryStore("state"))
    learned(shop, 2, generation="the-old-one")
    shop.learn()
    shop.publish()
    (tmp_path / "omdml.toml").write_text(
        '[store]\nurl = "dir:state"\n[catalogues.items]\npath = "items"\n[models.shop]\n'
    )
    for command in ("rollback", "pin"):
        result = CliRunner().invoke(cli.main, [command, "shop", "--version", "20"])
        assert result.exit_code != 0
        assert "no node could serve it" in f"{result.output}{result.exception}"
    assert shop.store.current("shop").version == 40


def damaged_at_the_end(shop, versions=3):
    """Versions of which the newest is damaged."""
    published = learned(shop, versions)
    shop.damage(shop.snapshot())
    return published


def test_a_node_that_starts_serves_the_newest_readable_version_and_says_so(shop):
    damaged_at_the_end(shop)
    with structlog.testing.capture_logs() as logs, shop.node() as node, asking(node) as client:
        wait_until_ready(node)
        assert client.get("/search?id=i1").json()["version"] == 20
        ready = client.get("/readyz")
        assert ready.status_code == 200
        (described,) = client.get("/models").json()["models"]
        for description in (ready.json()["refused"]["shop"], described["refused"]):
            assert (description["live"], description["serving"]) == (40, 20)
            assert "damaged" in description["reason"]
        assert described["version"] == 20
        assert "omdml_node_refused_models 1.0" in client.get("/metrics").text
        assert node.stale_seconds > 0
        shop.learn()
        assert shop.publish() == 60
        until(lambda: client.get("/search?id=i1").json()["version"] == 60)
        assert client.get("/readyz").json() == {"status": "ready"}
        assert "omdml_node_refused_models 0.0" in client.get("/metrics").text
    assert [log["serving"] for log in logs if log["event"] == "snapshot_refused"] == [20]


def test_a_node_that_starts_does_not_serve_what_was_held_back(shop):
    learned(shop, 1)
    shop.learn()
    shop.store.publish(shop.snapshot(), shop.epoch, withheld="worse")
    shop.learn()
    shop.publish()
    shop.damage(shop.snapshot())
    with shop.node() as node:
        wait_until_ready(node)
        assert node.view().snapshot.version == 0


def test_a_node_with_nothing_readable_names_the_damage(shop):
    damaged_at_the_end(shop, 1)
    with shop.node() as node, asking(node) as client:
        until(lambda: "refused" in client.get("/readyz").json())
        response = client.get("/readyz")
        assert response.status_code == 503
        assert response.json()["refused"]["shop"]["serving"] is None
        assert "damaged" in refused(client.get("/search?id=i1"), 503, "not_ready")
