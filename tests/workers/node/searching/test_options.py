"""Several queries in one search, mixed queries, expansion and explanation, against brute force and over HTTP."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.metrics import (
    BilinearMetric,
    CosineMetric,
    CoupledMetric,
    DiagonalMetric,
    FullMetric,
    SignedMetric,
)
from omdml.retrieval.missing_modalities import Filling
from omdml.workers.node.galleries.bridge import Bridge, Spread
from omdml.workers.node.galleries.gallery import Gallery, Query, ScoredGallery
from omdml.workers.node.searching.options import explained, nearest_each
from tests.support.catalogues.galleries import DIMS, features, metric, query_of_row
from tests.support.deep import examples
from tests.support.shops import Shop, asking, refused
from tests.support.waiting import until
from tests.support.worlds import catalogue, items

WIDTH = sum(DIMS.values())


def random_metric(kind: str, seed: int):
    draw = np.random.default_rng(seed)
    squares = {name: draw.normal(size=(d, d)) for name, d in DIMS.items()}
    weights = {"color": 0.3, "text": 0.7}
    match kind:
        case "projection":
            return metric(seed)
        case "cosine":
            experts = {"plain": np.zeros((0, WIDTH)), "joint": draw.normal(size=(5, WIDTH))}
            return CosineMetric(DIMS, draw.normal(size=WIDTH), experts, {"plain": 0.2, "joint": 0.8})
        case "coupled":
            matrices = {name: draw.normal(size=(3, WIDTH)) for name in ("shared", "one")}
            return CoupledMetric(DIMS, matrices, {"one": ["shared", "one"]})
        case "diagonal":
            return DiagonalMetric({name: draw.random(d) for name, d in DIMS.items()})
        case "full":
            return FullMetric(weights, {name: x @ x.T for name, x in squares.items()})
        case "bilinear":
            return BilinearMetric(squares)
    return SignedMetric({name: draw.normal(size=d) for name, d in DIMS.items()})


PARTS = {
    "projection": {"color", "text"},
    "cosine": {"plain", "joint"},
    "coupled": {"shared", "one"},
    "diagonal": {"color", "text"},
    "full": {"color", "text"},
    "bilinear": {"color", "text"},
    "signed": {"color", "text"},
}


@settings(max_examples=examples(30), deadline=None)
@given(count=st.integers(3, 60), seed=st.integers(0, 10_000), kind=st.sampled_from(sorted(PARTS)))
def test_parts_of_a_distance_add_up_to_it_under_every_metric(count, seed, kind):
    table, learned = features(count, seed), random_metric(kind, seed)
    index = (Gallery if learned.euclidean else ScoredGallery)(learned, table)
    # The queries are an item, the mean of two, and vectors that no item has.
    vectors = {name: x[:1] + 0.1 for name, x in table.items()}
    for query in (query_of_row(0), Query(np.array([0, 1])), Query(np.empty(0, np.int64), vectors)):
        hits = index.nearest(query, 5)
        parts = explained(index, query, hits.rows)
        assert all(set(part) == PARTS[kind] for part in parts)
        assert np.allclose([sum(part.values()) for part in parts], hits.distances, rtol=1e-5, atol=1e-5)


def test_an_expert_part_is_its_share_of_the_cosine_distance():
    table, learned = features(20), random_metric("cosine", 3)
    hits = Gallery(learned, table).nearest(query_of_row(4), 3)
    both = np.concatenate(list(table.values()), axis=1) - learned.mean
    turned = both @ learned.experts["joint"].T
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    expected = 0.8 * (2 - 2 * turned[hits.rows] @ turned[4])
    parts = explained(Gallery(learned, table), query_of_row(4), hits.rows)
    assert np.allclose([part["joint"] for part in parts], expected, atol=1e-5)


@settings(max_examples=examples(40), deadline=None)
@given(
    count=st.integers(2, 80), seed=st.integers(0, 10_000), k=st.integers(1, 90), queries=st.integers(2, 40),
    share=st.sampled_from([None, 0.05, 0.6]),
)  # fmt: skip
def test_several_queries_are_answered_as_each_alone(count, seed, k, queries, share):
    table, draw = features(count, seed), np.random.default_rng(seed)
    gallery = Gallery(metric(seed), table)
    among = None if share is None else draw.random(count) < share
    together = [Query(np.unique(draw.integers(0, count, 2)), among=among) for _ in range(queries)]
    for query, hits in zip(together, nearest_each(gallery, together, k), strict=True):
        alone = gallery.nearest(query, k)
        assert hits.rows.tolist() == alone.rows.tolist()
        assert hits.distances.tolist() == alone.distances.tolist()


def expanded_by_brute_force(learned, table, row, count):
    """Every other item by its distance from the weighed mean, in float64."""
    embedded = learned.embed(table).astype(np.float64)
    embedded -= embedded.mean(axis=0)
    distances = ((embedded - embedded[row]) ** 2).sum(axis=1)
    distances[row] = np.inf
    point, weight = embedded[row].copy(), 1.0
    for other in np.argsort(distances, kind="stable")[:count]:
        cosine = embedded[row] @ embedded[other] / np.linalg.norm(embedded[row]) / np.linalg.norm(embedded[other])
        point += max(0.0, cosine) ** 3 * embedded[other]
        weight += max(0.0, cosine) ** 3
    distances = ((embedded - point / weight) ** 2).sum(axis=1)
    distances[row] = np.inf
    return distances


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 10_000), kind=st.sampled_from(["projection", "cosine"]), expand=st.integers(1, 10))
def test_an_expanded_search_is_that_of_the_weighed_mean(seed, kind, expand):
    table, learned = features(50, seed), random_metric(kind, seed)
    gallery = Gallery(learned, table)
    hits = gallery.nearest(gallery.expanded(query_of_row(7), expand), 10)
    distances = expanded_by_brute_force(learned, table, 7, expand)
    assert np.allclose(hits.distances, np.sort(distances)[:10], rtol=1e-3, atol=1e-4)
    assert np.allclose(hits.distances, distances[hits.rows], rtol=1e-3, atol=1e-4)


def test_over_a_bridge_expansion_and_parts_are_those_of_the_new_metric():
    table, old = features(200), metric(1)
    new = metric(2, old, 0.001)
    bridge, whole = Bridge(Gallery(old, table), old, new, table, Spread(table)), Gallery(new, table)
    query = bridge.expanded(query_of_row(3), 5)
    hits, expected = bridge.nearest(query, 8), whole.nearest(whole.expanded(query_of_row(3), 5), 8)
    assert hits.rows.tolist() == expected.rows.tolist()
    assert np.allclose(hits.distances, expected.distances, rtol=1e-3)
    sums = [sum(part.values()) for part in explained(bridge, query, hits.rows)]
    assert np.allclose(sums, hits.distances, rtol=1e-5)


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.learn()
    return shop


@pytest.fixture
def client(shop):
    with shop.serving(expand=lambda model: 0) as node, asking(node) as client:
        yield client


def answer_to(client, **query):
    return client.post("/search", json=query).raise_for_status().json()


def vectors(row, name=None):
    return {modality: x[row].tolist() for modality, x in items()[0].items() if name in (None, modality)}


def test_queries_of_every_kind_share_one_request_and_one_version(client):
    queries = [{"id": "i5"}, {"ids": ["i6", "i7"]}, {"features": vectors(8)}, {"ids": ["i9"], "features": vectors(1)}]
    body = answer_to(client, queries=queries, k=4, exclude=["i0"])
    alone = [answer_to(client, **query, k=4, exclude=["i0"]) for query in queries]
    assert [[item["id"] for item in items] for items in body["answers"]] == [
        [item["id"] for item in entry["items"]] for entry in alone
    ]
    assert {entry["version"] for entry in alone} == {body["version"]}
    assert set(body) == {"model", "version", "serial", "took_s", "answers"}


def test_a_mix_of_items_and_vectors_asks_for_their_mean(client):
    mixed = answer_to(client, ids=["i5", "i6"], features=vectors(7), k=150)["items"]
    listed = answer_to(client, ids=["i5", "i6", "i7"], k=150)["items"]
    assert [item["id"] for item in mixed if item["id"] != "i7"] == [item["id"] for item in listed]
    assert "i5" not in [item["id"] for item in mixed]


@pytest.mark.parametrize("mapped", [False, True], ids=["features", "mapped"])
def test_vectors_of_some_modalities_ask_with_the_conditional_mean_of_others(tmp_path, mapped):
    whole = catalogue(tmp_path / "items", mapped=True)
    catalogue_view = whole.in_coordinates("mapped" if mapped else "features")
    shape_alone = {"shape": np.array([vectors(5)["shape"]])}
    scaled = {"shape": whole.scale({name: np.array([x]) for name, x in vectors(5).items()})["shape"]}
    filled = Filling(whole.features)(scaled)
    expected = dict.fromkeys(catalogue_view.dims, whole.map.apply(filled)) if mapped else filled
    completed = catalogue_view.scale_some(shape_alone)
    assert completed.keys() == expected.keys()
    assert all(np.array_equal(completed[name], expected[name]) for name in completed)
    all_modalities = {name: np.array([x]) for name, x in vectors(5).items()}
    assert all(
        np.array_equal(x, catalogue_view.scale_some(all_modalities)[name])
        for name, x in catalogue_view.scale(all_modalities).items()
    )


def test_some_modalities_alone_or_beside_items_can_be_asked_with(client):
    alone = answer_to(client, features=vectors(5, "shape"), k=20)["items"]
    assert "i5" in [item["id"] for item in alone]
    mixed = answer_to(client, ids=["i6"], features=vectors(5, "shape"), k=119)["items"]
    assert "i6" not in [item["id"] for item in mixed]
    assert len(mixed) == 119
    refusal = refused(client.post("/search", json={"features": {"shape": [1.0]}}), 400, "dimension")
    assert "has 1 number," in refusal
    refused(client.post("/search", json={"features": {"shap": [1.0]}}), 400, "invalid")


def test_parts_of_distances_come_over_http_only_if_explain_is_asked_for(client):
    plain = answer_to(client, id="i5", k=3)["items"]
    assert all("parts" not in item for item in plain)
    answers = answer_to(client, id="i5", k=3, explain=True, expand=4)["items"]
    by_url = client.get("/search?id=i5&k=3&explain=true&expand=4").json()["items"]
    assert by_url == answers
    for item in answers:
        assert set(item["parts"]) == {"shape", "noise"}
        assert sum(item["parts"].values()) == pytest.approx(item["distance"], rel=1e-6)


def test_a_model_expands_as_configured_unless_the_search_says_otherwise(shop):
    with shop.serving(expand=lambda model: 5) as node, asking(node) as client:
        configured, expanded, off = (
            answer_to(client, id="i5", k=50, **more)["items"] for more in ({}, {"expand": 5}, {"expand": 0})
        )
    assert configured == expanded
    assert [item["id"] for item in off] == shop.expected(shop.learner.version, "i5", 50)[0]
    assert [entry["distance"] for entry in off] != [entry["distance"] for entry in expanded]


@pytest.mark.parametrize(
    ("body", "error", "expected"),
    [
        ({"queries": []}, "invalid", "queries"),
        ({"queries": [{"id": "i1"}] * 101, "k": 1}, "invalid", "queries"),
        ({"queries": [{"id": "i1"}] * 100, "k": 101}, "bad_k", "100 queries of 101 items each"),
        ({"queries": [{"id": "i1"}, {}]}, "invalid", "query 2 says nothing to search for"),
        ({"queries": [{"id": "i1", "ids": ["i2"]}]}, "invalid", "query 1 has both id and ids"),
        ({"queries": [{"id": "i1", "k": 3}]}, "invalid", "field 'queries[0]': no field 'k'"),
        ({"queries": [{"id": "i1"}], "id": "i2"}, "invalid", "give one or the other"),
        ({"id": "i1", "expand": 101}, "invalid", "expand"),
        ({"id": "i1", "expand": -1}, "invalid", "expand"),
    ],
)
def test_options_that_make_no_sense_are_refused_saying_why(client, body, error, expected):
    assert expected in refused(client.post("/search", json=body), 400, error)


def test_an_error_says_which_of_several_queries_it_is_about(client):
    queries = [{"id": "i1"}, {"ids": ["i2", "no item"]}]
    text = refused(client.post("/search", json={"queries": queries}), 404, "unknown_item")
    assert text.startswith("query 2: ")
    # A single query has no number.
    alone = refused(client.post("/search", json=queries[1]), 404, "unknown_item")
    assert text == f"query 2: {alone}"


def test_a_comparison_has_both_answers_and_the_items_that_moved(shop):
    with shop.serving() as node, asking(node) as client:
        first = shop.learner.version
        shop.learn(300)
        second = shop.publish()
        until(lambda: node.view().snapshot.version == second)
        url = f"/models/shop/compare?before={first}&id=i5&k=6"
        body = client.get(url).raise_for_status().json()
        assert body == client.get(f"{url}&after={second}").json()
        ranks = [{name: rank for rank, name in enumerate(shop.expected(v, "i5", 119)[0], 1)} for v in (first, second)]
        shown = [shop.expected(version, "i5", 6)[0] for version in (first, second)]
        assert [[item["id"] for item in body[side]["items"]] for side in ("before", "after")] == shown
        expected = [name for name in dict.fromkeys(shown[1] + shown[0]) if ranks[0][name] != ranks[1][name]]
        assert [item["id"] for item in body["moved"]] == expected
        for item in body["moved"]:
            was, now = ranks[0][item["id"]], ranks[1][item["id"]]
            assert (item["before"], item["after"], item["rose"]) == (was, now, was - now)
        refused(client.get("/models/shop/compare?before=99999&id=i5"), 404, "not_kept")
        refused(client.get("/models/none/compare?before=1&id=i5"), 404, "unknown_model")
        refused(client.get(f"/models/shop/compare?before={first}&id=nope"), 404, "unknown_item")
        refused(client.get(f"/models/shop/compare?before={first}&id=i5&k=1001"), 400, "bad_k")
        same = client.get(f"/models/shop/compare?before={second}&id=i5").json()
        assert same["moved"] == []
