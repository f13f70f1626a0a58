"""An approximate index: it finds most of the nearest items, and is made in the background."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from omdml.errors import ConfigurationError
from omdml.retrieval.cells import faiss
from omdml.workers.node.galleries.bridge import Bridge, Spread
from omdml.workers.node.galleries.gallery import Gallery, Query
from omdml.workers.node.galleries.indexing import is_approximate, with_cells
from tests.support.catalogues.galleries import features, metric, query_of_row
from tests.support.nodes import assert_exact, serves
from tests.support.shops import Shop
from tests.support.waiting import until

# The lowest versions are tried without this extra.
pytest.importorskip("faiss")
ROWS = 6_000


@pytest.fixture(scope="module")
def table():
    return features(ROWS)


@pytest.fixture(scope="module")
def exact(table):
    return Gallery(metric(), table)


@pytest.fixture(scope="module")
def near(exact):
    return exact.with_cells()


def share_found(index, exact, queries, k=10):
    """The share of the exact answers that an index finds; each distance that it says is exact."""
    shares = []
    for query in queries:
        hits, expected = index.nearest(query, k), exact.nearest(query, k)
        all_rows = exact.nearest(query, ROWS)
        distances = dict(zip(all_rows.rows.tolist(), all_rows.distances.tolist(), strict=True))
        assert np.allclose(hits.distances, [distances[row] for row in hits.rows.tolist()], rtol=1e-4, atol=1e-5)
        assert np.all(np.diff(hits.distances) >= 0)
        shares.append(len(set(hits.rows.tolist()) & set(expected.rows.tolist())) / len(expected.rows))
    return float(np.mean(shares))


def test_most_of_the_nearest_items_are_found(near, exact):
    assert share_found(near, exact, [query_of_row(row) for row in range(0, ROWS, 400)]) > 0.9


def test_items_that_a_filter_leaves_out_are_no_answers(near, exact):
    among = np.random.default_rng(0).random(ROWS) < 0.5
    hits = near.nearest(Query(np.array([3]), among=among), 20)
    assert among[hits.rows].all()
    assert 3 not in hits.rows
    assert share_found(near, exact, [Query(np.array([row]), among=among) for row in range(0, ROWS, 900)]) > 0.9


def test_if_a_filter_leaves_few_items_the_answer_is_exact(near, exact):
    among = np.zeros(ROWS, np.bool_)
    among[::97] = True
    query = Query(np.array([3]), among=among)
    assert near.nearest(query, 30).rows.tolist() == exact.nearest(query, 30).rows.tolist()


def test_a_filter_that_leaves_only_far_items_is_answered_as_without_an_index(near, exact):
    """The cells that a search looks into hold none of these items."""
    order = exact.nearest(query_of_row(3), ROWS).rows
    among = np.zeros(ROWS, np.bool_)
    among[order[-ROWS // 5 :]] = True
    query = Query(np.array([3]), among=among)
    assert near.nearest(query, 10).rows.tolist() == exact.nearest(query, 10).rows.tolist()


@pytest.mark.parametrize("k", [1_000, ROWS - 1, 2 * ROWS])
def test_more_answers_than_the_nearest_cells_hold_are_given(near, exact, k):
    """A tenth of the cells holds some 600 rows."""
    assert near.nearest(query_of_row(3), k).rows.tolist() == exact.nearest(query_of_row(3), k).rows.tolist()


def test_items_that_came_later_are_answers_at_once(table):
    grown = Gallery(metric(), {name: x[:-50] for name, x in table.items()}).with_cells().grown(table)
    assert grown.outside == 50
    near = grown.nearest(Query(np.empty(0, np.int64), {name: x[-1:] for name, x in table.items()}), 3)
    assert near.rows[0] == ROWS - 1
    assert near.distances[0] < 1e-6


def test_a_new_metric_orders_what_the_old_cells_hold(table, near):
    old, new = metric(), metric(1, metric(), 0.02)
    bridge, whole = Bridge(near, old, new, table, Spread(table)), Gallery(new, table)
    assert share_found(bridge, whole, [query_of_row(row) for row in range(0, ROWS, 900)]) > 0.9


def test_the_index_of_each_version_is_made_in_the_background(tmp_path, monkeypatch):
    monkeypatch.setattr("omdml.retrieval.cells.LEAST_ROWS", 10)
    threads = []

    def noted(view):
        threads.append(threading.current_thread().name.partition("_")[0])
        return with_cells(view)

    monkeypatch.setattr("omdml.workers.node.following.hot_swap.with_cells", noted)
    shop = Shop(tmp_path)
    with shop.serving(patience_s=0.0, approximate=lambda model: True) as node:
        until(lambda: is_approximate(node.view()))
        shop.learn()
        until(serves(node, shop.publish()))
        until(lambda: node.view().origin is None and is_approximate(node.view()))
        assert node.view().snapshot.version == shop.learner.version
        # There are so few items that a search looks into all cells.
        assert_exact(shop, node.search(ids=["i3"]), "i3")
    # The thread that follows versions made none of them.
    assert set(threads) == {"omdml-embed"}


def test_an_index_is_used_though_newer_versions_went_live_while_it_was_made(tmp_path, monkeypatch):
    monkeypatch.setattr("omdml.retrieval.cells.LEAST_ROWS", 10)
    # No bridge from the gallery without an index holds.
    monkeypatch.setattr("omdml.workers.node.galleries.bridge.FEWEST", 0)
    shop, indexed, views = Shop(tmp_path), [], []

    def overtaken(view):
        indexed.append(with_cells(view))
        if len(indexed) == 1:
            shop.learn(500)
            until(serves(node, shop.publish()))
            assert node.view().origin is None
        elif len(indexed) == 2:
            views.append(node.view())
        return indexed[-1]

    monkeypatch.setattr("omdml.workers.node.following.hot_swap.with_cells", overtaken)
    shop.publish()
    node = shop.node(patience_s=0.0, approximate=lambda model: True)
    with node:
        until(lambda: views)
        until(lambda: node.view().origin is None and is_approximate(node.view()))
    # While the index of the newer version is made, the cells of the older one answer for it.
    assert is_approximate(views[0])
    assert views[0].snapshot.version == 500


def test_without_faiss_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'omdml\[approximate\]'"):
        faiss()
