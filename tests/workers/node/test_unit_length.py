"""What nodes and operators do with unit-length embeddings, whose directions come and go."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from omdml import DCA, LOMDML
from omdml.errors import StoreError
from omdml.metrics import CosineMetric
from omdml.snapshot import metric_from_bytes, metric_to_bytes
from omdml.streams.catalogues.changes.change import Change
from omdml.streams.protocols.store import Pointer
from omdml.workers.cli import main
from omdml.workers.node.following.making_views import bridged_view, embedded_view, grown_view
from omdml.workers.versions.inspection import changes, neighbours_kept, parts, weights
from tests.support.catalogues.changing import change, raw_item
from tests.support.shops import Shop


@pytest.fixture
def shop(tmp_path):
    """A shop whose model is learned by DCA, with some versions."""
    shop = Shop(tmp_path)
    shop.learner = DCA(dims=dict(shop.catalogue.dims))
    shop.learner.start(shop.catalogue.features)
    return shop


def snapshots(shop, counts):
    """The snapshots after these numbers of comparisons."""
    results = []
    for count in counts:
        shop.learn(count - shop.learner.version)
        results.append(shop.snapshot(learner="dca"))
        shop.metrics[count] = results[-1].metric
    return results


def view_of(shop, snapshot, before=None):
    pointer = Pointer(snapshot.version, snapshot.version, "digest", 1, 0.0, store_id="store")
    return embedded_view(pointer, snapshot, shop.catalogue, before)


def test_a_gallery_answers_with_the_nearest_by_learned_cosine(shop):
    for snapshot in snapshots(shop, (1, 200, 1200)):
        view = view_of(shop, snapshot)
        answer = view.search(view.items(["i3"]), 7)
        names, distances = shop.expected(snapshot.version, "i3", 7)
        assert [item.id for item in answer.items] == names
        np.testing.assert_allclose([item.distance for item in answer.items], distances, atol=1e-5)


def test_a_query_of_items_is_the_same_before_and_after_a_new_one_is_embedded(shop):
    (snapshot,) = snapshots(shop, (200,))
    view = view_of(shop, snapshot)
    change(shop.catalogue, Change(id="new", features=raw_item(np.random.default_rng(5))))
    ids = ["new", "i3", "i40"]
    before, after = (each.search(each.items(ids), 7) for each in (view, grown_view(view, shop.catalogue)))
    assert [item.id for item in before.items] == [item.id for item in after.items]
    np.testing.assert_allclose(*([item.distance for item in answer.items] for answer in (before, after)), atol=1e-5)


def test_a_gallery_is_kept_until_the_metric_is_another(shop):
    first, other = snapshots(shop, (200, 201))
    same = msgspec.structs.replace(first, version=201, metric=metric_from_bytes(metric_to_bytes(first.metric)))
    view = view_of(shop, first)
    again = view_of(shop, same, before=view)
    assert again.indexes[None] is view.indexes[None]
    assert (again.snapshot.version, again.pointer.serial) == (201, 201)
    assert view_of(shop, other, before=again).indexes[None] is not view.indexes[None]
    assert bridged_view(view, again.pointer, other, shop.catalogue) is None


def test_versions_with_other_directions_are_compared(shop):
    start, few, many = snapshots(shop, (0, 3, 1200))
    assert [set(weights(entry.metric)) for entry in (start, few, many)] == [
        {"plain"},
        {"plain", "items", "far"},
        {"items", "far"},
    ]
    assert sum(weights(few.metric).values()) == pytest.approx(1)
    for before, after in ((start, few), (few, many), (start, many), (many, few)):
        shares = {change.name: change.relative for change in changes(before, after)}
        assert set(shares) <= {"mean", "plain/W", "items/W", "far/W"}
        assert shares["mean"] == 0
        assert all(np.isfinite(value) for value in shares.values())
    assert all(change.relative < 1e-6 for change in changes(many, many))
    turned = {name: -rows[::-1] for name, rows in many.metric.experts.items()}
    turned = CosineMetric(many.metric.dims, many.metric.mean, turned, many.metric.shares)
    assert {change.relative < 1e-3 for change in changes(many, msgspec.structs.replace(many, metric=turned))} == {True}
    assert {part.name for part in parts(many.metric)} == {"mean", "items/W", "far/W"}
    assert 0 < neighbours_kept(few.metric, many.metric, shop.catalogue.features) < 1


def test_a_metric_of_another_kind_is_not_compared(shop):
    learner = LOMDML(dims=dict(shop.catalogue.dims), rank=3)
    learner.start(shop.catalogue.features)
    with pytest.raises(StoreError, match="different shapes"):
        changes(snapshots(shop, (5,))[0], shop.snapshot(metric=learner.metric))


def test_inspect_names_the_experts_of_a_cosine_metric(shop, tmp_path):
    (few,) = snapshots(shop, (3,))
    path = tmp_path / "snapshot"
    path.write_bytes(few.to_bytes())
    (tmp_path / "omdml.toml").write_text('[store]\nurl = "dir:store"\n')
    done = CliRunner().invoke(main, ["inspect", str(path), "--config", str(tmp_path / "omdml.toml")])
    assert done.exit_code == 0, done.output
    assert re.search(r"expert\W+weight", done.output)
    assert re.search(r"plain\W+0\.625", done.output)
    for name in ("items", "far"):
        assert re.search(rf"{name}\W+0\.\d", done.output)
        assert re.search(rf"{name}/W\W+\d+ x 14", done.output)
