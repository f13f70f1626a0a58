"""What went live on a node, and when."""

from __future__ import annotations

import time
from dataclasses import replace

import msgspec
import pytest
import structlog

from omdml.snapshot import Trail
from omdml.workers.node.following import went_live
from tests.support.nodes import refresher
from tests.support.shops import Shop


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def refresh(shop, node, **changes):
    """Have 20 more comparisons go live."""
    shop.learn()
    shop.publish(**changes)
    node._refresher.refresh("shop")


def test_each_version_that_goes_live_is_a_step_with_what_the_learner_said(shop):
    shop.publish()
    node = shop.node()
    node.view("shop")
    began = time.time()
    refresh(shop, node, progress={"mistake_rate": 0.25}, event_time=began)
    first, second = node.steps.of("shop")
    assert (first.number, first.what, first.version, first.freshness_s) == (1, "model_live", 0, None)
    assert (second.number, second.what, second.version, second.serial) == (2, "new_version", 20, 2)
    assert second.figures == {"mistake_rate": 0.25}
    assert (first.newest_event_at, second.newest_event_at) == (None, began)
    assert set(second.weights) == set(shop.catalogue.dims)
    assert began <= second.at <= time.time()


def test_a_step_says_how_long_the_oldest_new_event_took_and_where(shop):
    shop.publish()
    node = shop.node()
    node.view("shop")
    now = time.time()
    # No view of this node has had the first of these either, so it is the oldest new event.
    refresh(shop, node, trails=(Trail(10, 3, now - 8, now - 6, now - 5), Trail(20, 1, now - 1, now - 1, now - 1)))
    step = node.steps.of("shop")[-1]
    assert list(step.stages) == ["log", "learn", "publish", "fetch", "swap"]
    assert step.stages["log"] == pytest.approx(2, abs=0.01)
    assert step.stages["learn"] == pytest.approx(1, abs=0.01)
    assert step.freshness_s == pytest.approx(sum(step.stages.values()))
    assert 8 <= step.freshness_s <= 8 + time.time() - now


def test_moves_of_operators_are_steps_too(shop):
    shop.publish()
    node = shop.node()
    node.view("shop")
    began = time.time()
    refresh(shop, node, trails=(Trail(20, 1, began, began, began),))
    assert node.steps.of("shop")[-1].freshness_s <= time.time() - began
    shop.store.move("shop", 0, pin=True)
    node._refresher.refresh("shop")
    step = node.steps.of("shop")[-1]
    assert (step.what, step.version, step.pinned) == ("rolled_back", 0, True)
    # If the newest version answers again, I expect no event to be called new.
    shop.store.move("shop", None, pin=False)
    node._refresher.refresh("shop")
    step = node.steps.of("shop")[-1]
    assert (step.what, step.version, step.freshness_s) == ("unpinned", 20, None)


def test_whoever_listens_hears_each_step_until_the_end(shop):
    shop.publish()
    node = shop.node()
    heard = []
    end = node.steps.listen(heard.append)
    node.view("shop")
    refresh(shop, node)
    end()
    refresh(shop, node)
    assert [step.version for step in heard] == [0, 20]
    assert [step.version for step in node.steps.of("shop")] == [0, 20, 40]


def test_a_long_course_keeps_its_beginning_and_its_shape_in_bounded_memory(shop, monkeypatch):
    monkeypatch.setattr(went_live, "MOST", 8)
    shop.publish()
    node = shop.node()
    node.view("shop")
    for _ in range(40):
        refresh(shop, node)
    versions = [step.version for step in node.steps.of("shop")]
    assert len(versions) <= 8
    assert versions == sorted(versions)
    assert versions[0] == 0
    assert versions[-1] == 800


def test_names_that_are_loaded_one_after_another_leave_nothing_behind_but_steps(tmp_path):
    shop = Shop(tmp_path)
    node = shop.node(models=["user-*"])
    for name in ("user-0", "user-1", "user-2"):
        shop.store.publish(shop.snapshot(model=name), shop.store.claim(name).epoch)
        node.view(name)
        shop.store.delete(name)
        node._refresher.refresh(name)
    assert (node.steps._highest, list(node._live.views)) == ({}, [])
    assert list(node._pattern_memory._used_at) == ["user-2"]
    assert [step.what for step in node.steps.of("user-0")] == ["model_live", "model_deleted"]


def test_a_model_that_is_deleted_is_a_step_of_the_version_it_begins_with(shop):
    shop.publish()
    node = shop.node(first=shop.current.first)
    node.view("shop")
    refresh(shop, node)
    heard = []
    node.steps.listen(lambda step: heard.append((step, node.readiness.missing(), node.view("shop").snapshot.version)))
    shop.store.delete("shop")
    node._refresher.refresh("shop")
    ((step, missing, version),) = heard
    assert (step.what, step.version, step.serial, step.number) == ("model_deleted", 0, 0, 3)
    # Whoever hears of the step can search at once.
    assert (missing, version) == ([], 0)
    assert node.steps.newest() == [step]


def test_many_names_share_the_room_for_steps(shop, monkeypatch):
    monkeypatch.setattr(went_live, "IN_ALL", 40)
    monkeypatch.setattr(went_live, "FEWEST", 2)
    shop.publish()
    view = shop.node().view("shop")
    steps = went_live.Steps(label=lambda model: model)
    for step in range(30):
        for name in range(8):
            named = replace(view, snapshot=msgspec.structs.replace(view.snapshot, model=f"m{name}", version=step))
            steps.add(f"m{name}", None, named, 0.0)
    for name in range(8):
        versions = [step.version for step in steps.of(f"m{name}")]
        assert len(versions) <= 5
        assert (versions[0], versions[-1]) == (0, 29)


def test_each_operators_move_is_logged_and_new_versions_are_reported_together(shop, monkeypatch):
    shop.learn(40)
    shop.publish()
    node = refresher(shop)

    def learned():
        shop.learn(1)
        shop.publish()

    with structlog.testing.capture_logs() as logs:
        moves = [
            lambda: None, learned, learned, learned,
            lambda: shop.store.move("shop", 40, pin=True),
            lambda: shop.store.move("shop", 42, pin=True),
            lambda: shop.store.move("shop", None, pin=False),
        ]  # fmt: skip
        for move in moves:
            move()
            node.refresh("shop")
        monkeypatch.setattr(went_live, "LOG_EVERY_S", 0.0)
        learned()
        node.refresh("shop")
    assert [(line["event"], line["before"], line["version"], line.get("swaps")) for line in logs] == [
        ("model_live", None, 40, None),
        ("new_version", 40, 41, 1),
        ("rolled_back", 43, 40, None),
        ("pinned", 40, 42, None),
        ("unpinned", 42, 43, None),
        ("new_version", 43, 44, 3),
    ]
