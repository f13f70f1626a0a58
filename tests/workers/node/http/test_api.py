"""The node over HTTP: what it answers, what it refuses and how, over a real server if that matters."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time

import httpx
import msgspec
import numpy as np
import pytest
import structlog
from prometheus_client import CollectorRegistry

from omdml.client import Client, Freshness
from omdml.errors import ConfigurationError
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.process import serve_metrics
from omdml.workers.node.http.app import create_app
from omdml.workers.node.http.endpoints.console import CONSOLE
from omdml.workers.node.http.meanings import MEANINGS
from omdml.workers.node.http.openapi import IN_QUERIES, openapi
from omdml.workers.node.http.server import HttpServer, serve
from omdml.workers.node.node import RetrievalNode
from omdml.workers.wiring.node import serve_node
from tests.support.forks import FORKS, LIMIT_S
from tests.support.shops import Shop, asking, listening, refused
from tests.support.waiting import until
from tests.support.worlds import events, items


def test_a_search_names_the_nearest_items_and_the_version_that_says_so(shop, client):
    body = client.get("/search", params={"id": "i5", "k": 3}).raise_for_status().json()
    ids, distances = shop.expected(0, "i5", 3)
    assert [item["id"] for item in body["items"]] == ids
    assert [item["distance"] for item in body["items"]] == pytest.approx(distances.tolist(), rel=1e-4)
    assert (body["model"], body["version"], body["serial"]) == ("shop", 0, 1)
    assert body["took_s"] >= 0


def test_ten_items_are_answered_unless_asked_otherwise(client):
    assert len(client.get("/search", params={"id": "i5", "model": "shop"}).json()["items"]) == 10


def test_one_item_several_items_and_vectors_can_be_posted(client):
    features, _ = items()
    vectors = {name: matrix[5].tolist() for name, matrix in features.items()}
    alone = client.post("/search", json={"id": "i5", "k": 4}).json()["items"]
    listed = client.post("/search", json={"ids": ["i5"], "k": 4}).json()["items"]
    by_vectors = client.post("/search", json={"features": vectors, "k": 5}).json()["items"]
    several = client.post("/search", json={"ids": ["i5", "i6"], "k": 200}).json()["items"]
    assert alone == listed
    assert [by_vector["id"] for by_vector in by_vectors] == ["i5", *(item["id"] for item in alone)]
    assert len(several) == 118


@pytest.mark.parametrize(
    ("query", "status", "error", "message"),
    [
        ("id=nope", 404, "unknown_item", "'nope'"),
        ("id=i1&model=shpo", 404, "unknown_model", "did you mean 'shop'?"),
        ("id=i1&k=0", 400, "bad_k", "1 to 10000"),
        ("id=i1&k=10001", 400, "bad_k", "1 to 10000"),
        ("id=i1&k=ten", 400, "bad_k", "query: field 'k': expected a whole number, got text 'ten'"),
        ("id=i1&taks=a", 400, "unknown_parameter", "no parameter 'taks': did you mean 'task'?"),
        (
            "id=i1&fields=price",
            400,
            "unknown_parameter",
            "does not take 'fields': send the search as JSON to POST /search",
        ),
        ("id=i1&id=i2", 400, "invalid", "given twice"),
        ("k=3", 400, "invalid", "query: it has no field 'id', which is needed: add it"),
        ("id=i1&task=taste", 400, "unknown_task", "has no tasks"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused_saying_why(standing_client, query, status, error, message):
    assert message in refused(standing_client.get(f"/search?{query}"), status, error)


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (b"{", "not_json", "not a JSON object"),
        (b"[]", "not_json", "not a JSON object"),
        (b'{"features":{"shape":[-Infinity]}}', "not_json", "got 'Infinity]}}': JSON has no NaN and no Infinity"),
        (b"\xff", "not_json", "not a JSON object"),
        (b'{"id": "i1", "ids": ["i2"]}', "invalid", "has both id and ids: put all items into ids"),
        (b'{"k": 3}', "invalid", "nothing to search for: add id, ids, features, text or picture"),
        (b'{"id": "i1", "featurs": {}}', "unknown_parameter", "did you mean 'features'?"),
        (b'{"id": "i1", "k": "3"}', "bad_k", "query: field 'k': expected a whole number, got text '3'"),
        (b'{"features": {"shape": ["x"]}}', "invalid", "features"),
        (b'{"features": [1]}', "invalid", 'got a list, as in {"features": {"color"'),
        (b'{"text": "red"}', "invalid", 'got text \'red\', as in {"text": {"title"'),
        (b'{"features": {}}', "missing_modality", "noise"),
    ],
)
def test_a_posted_search_that_makes_no_sense_is_refused_saying_why(standing_client, body, error, message):
    assert message in refused(standing_client.post("/search", content=body), 400, error)


@pytest.mark.parametrize("patience_s", [0.0, 3600.0], ids=["over bridges", "embedded whole"])
def test_vectors_too_large_to_be_compared_are_refused_and_no_others(shop, patience_s):
    features, _ = items()
    vectors = {name: matrix[5].tolist() for name, matrix in features.items()}
    with shop.serving(patience_s=patience_s) as node, asking(node) as client:
        shop.learn()
        version = shop.publish()
        until(lambda: node.view().snapshot.version == version)
        for size in 10.0 ** np.arange(0, 39):
            query = {"features": {**vectors, "noise": [size] * 5}, "k": 7}
            response = client.post("/search", json=query)
            if response.status_code != 200:
                assert "modality 'noise' is too large" in refused(response, 400, "not_finite")
                assert size > 1e15
            else:
                assert len(response.json()["items"]) == 7
                assert size < 1e25
        assert client.post("/search", json={"features": vectors, "k": 7}).status_code == 200


def test_a_search_must_name_its_model_if_there_are_several(shop):
    with shop.serving(models=["shop", "user-*"]) as node, asking(node) as client:
        assert "shop, user-*" in refused(client.get("/search?id=i1"), 400, "invalid")
        refused(client.get("/search?id=i1&model=user-3"), 503, "not_ready")
        assert client.get("/search?id=i1&model=shop").status_code == 200


def test_a_model_of_a_pattern_is_loaded_by_the_first_search(tmp_path):
    shop = Shop(tmp_path, model="user-7")
    shop.publish()
    with shop.node(models=["user-*"]) as node, asking(node) as client:
        assert client.get("/search?id=i1&model=user-7").status_code == 200


def test_a_node_is_ready_when_every_named_model_is(shop):
    with shop.node() as node, asking(node) as client:
        assert "shop" in refused(client.get("/readyz"), 503, "not_ready")
        refused(client.get("/search?id=i1"), 503, "not_ready")
        assert client.get("/healthz").status_code == 200
        shop.publish()
        until(lambda: client.get("/readyz").status_code == 200)
        assert client.get("/search?id=i1").status_code == 200


def test_a_node_whose_thread_ended_is_not_healthy(shop):
    node = shop.node()
    with asking(node) as client:
        with node:
            assert client.get("/healthz").status_code == 200
        assert "restart" in refused(client.get("/healthz"), 503, "stuck")


def test_requests_that_are_too_large_are_refused(client, monkeypatch):
    monkeypatch.setattr("omdml.workers.node.http.requests.MAX_QUERY_BYTES", 100)
    monkeypatch.setattr("omdml.workers.node.http.endpoints.feedback.MAX_FEEDBACK_BYTES", 100_000)
    monkeypatch.setattr("omdml.workers.node.http.requests.MAX_EVENTS", 5)
    assert "at most 100" in refused(client.post("/search", content=b" " * 101), 413, "oversize")
    refused(client.post("/search", content=(b" " * 60 for _ in range(2))), 413, "oversize")
    refused(client.post("/feedback", content=b" " * 100_001), 413, "oversize")
    lines = b"\n".join(events(6))
    refused(client.post("/feedback", content=lines, headers={"content-type": "application/x-ndjson"}), 413, "oversize")


def test_models_tell_what_answers_and_how_fresh(client):
    body = client.get("/models").json()
    assert body["stale_seconds"] == 0
    (described,) = body["models"]
    assert (described["model"], described["version"], described["items"]) == ("shop", 0, 120)
    assert described["freshness"] is None


def test_freshness_can_be_asked_for_since_a_moment(shop, client):
    def goes_live(age_s):
        shop.learn()
        version = shop.publish(oldest_event_time=time.time() - age_s)
        until(lambda: (client.get("/models").json()["models"][0]["freshness"] or {}).get("count") == version / 20)
        return client.get("/models").json()["models"][0]["live_since"]

    # The click was long before this version went live.
    began = goes_live(500.0)
    goes_live(0.0)
    since = client.get("/models", params={"since": repr(began)}).json()["models"][0]["freshness"]
    assert since["count"] == 1
    assert since["p99_s"] < 500.0
    with Client(str(client.base_url)) as people:
        assert people.models(began)[0].freshness == Freshness(**since)
        assert people.models()[0].freshness.count == 2
    refused(client.get("/models?since=noon"), 400, "invalid")
    refused(client.get("/models?sinse=1"), 400, "unknown_parameter")


def test_metrics_are_those_of_the_design(client):
    client.get("/search", params={"id": "i5"})
    text = client.get("/metrics").text
    for name in (
        'omdml_node_search_seconds_count{model="shop"} 1.0',
        'omdml_node_searches_total{exact="true",model="shop",via="gallery"} 1.0',
        'omdml_node_gallery_items{model="shop"} 120.0',
        'omdml_node_snapshot_version{model="shop"} 0.0',
        'omdml_node_swap_seconds_count{model="shop"} 1.0',
        "omdml_node_snapshots_live_total 1.0",
        "omdml_node_stale_seconds 0.0",
        'omdml_node_freshness_seconds_count{model="shop"} 0.0',
        'omdml_http_requests_total{code="200",method="GET",route="/search"} 1.0',
        'omdml_http_requests_total{code="404",method="other",route="other"} 0.0',
        "omdml_http_requests_in_flight 1.0",
        "omdml_http_connections_limit 1000.0",
    ):
        assert name in text


def test_the_schema_describes_every_route_but_those_of_the_console(node, client):
    another = RetrievalNode(node.store, node.catalogues, ["shop"])
    described = {(path, method.upper()) for path, methods in openapi()["paths"].items() for method in methods}
    routes = {
        (route.path.replace(":path}", "}"), method)
        for route in create_app(another).routes
        for method in route.methods - {"HEAD"}
    }
    pages = {(route.path.replace(":path}", "}"), "GET") for route in CONSOLE}
    assert described == routes - pages
    document = client.get("/schema").json()
    assert document == json.loads(json.dumps(openapi()))
    # It is imported late, because every process of tests imports this file.
    from openapi_spec_validator import validate

    validate(document)


def test_the_schema_says_what_every_parameter_and_field_means():
    document = openapi()
    requests = [request for methods in document["paths"].values() for request in methods.values()]
    parameters = [parameter for request in requests for parameter in request.get("parameters", [])]
    assert all(parameter.get("description") or parameter["schema"].get("description") for parameter in parameters)
    fields = {
        (name, field): option
        for name, part in document["components"]["schemas"].items()
        for field, option in part.get("properties", {}).items()
    }
    assert [name for name, option in fields.items() if not option.get("description")] == [], "these have no description"


def test_the_schema_describes_lists_as_generators_of_clients_read_them():
    # `"items": false` is valid, but openapi-python-client 0.29 then makes no client at all.
    def lists(part):
        if isinstance(part, dict):
            yield from [part] if part.get("type") == "array" else []
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else ():
            yield from lists(inner)

    assert (arrays := list(lists(openapi())))
    assert [part for part in arrays if not isinstance(part.get("items"), dict)] == []


def test_the_schema_names_all_that_is_said_of_models_and_of_their_history(shop, client):
    schemas = openapi()["components"]["schemas"]
    for answers, name in (
        (client.get("/models").json()["models"], "LiveModel"),
        (client.get("/models/shop/history").json()["lines"], "HistoryLine"),
    ):
        assert answers
        for answer in answers:
            assert set(schemas[name]["required"]) <= set(answer) <= set(schemas[name]["properties"])


def test_the_schema_says_what_the_node_refuses(client):
    document = openapi()
    refused(client.post("/search", json={"id": "i1", "nosuch": 1}), 400, "unknown_parameter")
    refused(client.post("/clicks", json={"search": "s", "ids": [], "nosuch": 1}), 400, "unknown_parameter")
    for name in ("Search", "OneQuery", "Clicks", "Move", "PutItem", "Change", "Settle"):
        assert document["components"]["schemas"][name]["additionalProperties"] is False, name
    for path, parameters in (("/search", "id=i1"), ("/models/shop/compare", "id=i1&before=0")):
        described = document["paths"][path.replace("/shop/", "/{model}/")]["get"]["parameters"]
        limits = next(parameter["schema"] for parameter in described if parameter["name"] == "k")
        low, high = limits["minimum"], limits["maximum"]
        codes = [client.get(f"{path}?{parameters}&k={k}").status_code for k in (low - 1, low, high, high + 1)]
        assert codes == [400, 200, 200, 400]


def test_every_meaning_belongs_to_a_field_that_exists():
    fields = {name: set(part.get("properties", {})) for name, part in openapi()["components"]["schemas"].items()}
    fields |= {struct.__name__: set(struct.__struct_fields__) for struct in IN_QUERIES}
    for name, meanings in MEANINGS.items():
        assert set(meanings) <= fields[name], name


def test_the_schema_is_made_once(client, monkeypatch):
    document = client.get("/schema").content
    monkeypatch.setattr(msgspec.json, "schema_components", None)
    assert client.get("/schema").content == document


def test_an_unknown_path_and_a_wrong_method_are_json_errors_too(client):
    assert all(refused(client.get(path), 404, "not_found") for path in ("/serach", "/search/"))
    response = client.delete("/search")
    message = "DELETE /search: method not allowed; it takes GET, HEAD, POST; "
    assert message in refused(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(("wanted", "status"), [("all", 503), ("any", 200)])
def test_a_node_may_be_ready_once_one_of_its_named_models_is(shop, wanted, status):
    with shop.node(models=["shop", "other"], ready=wanted) as node, asking(node) as client:
        assert client.get("/readyz").status_code == 503
        shop.publish()
        until(lambda: node.readiness.missing() == ["other"])
        assert client.get("/readyz").status_code == status


def test_a_failure_nobody_foresaw_is_a_json_error_and_in_the_log(node, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(type(node), "answers", fail)
    with asking(node) as client, structlog.testing.capture_logs() as logs:
        refused(client.get("/search?id=i1"), 500, "internal")
    assert logs[0]["event"] == "request_failed"


def test_a_version_that_goes_live_answers_the_next_request(shop, node, client):
    for version in range(5, 105, 5):
        shop.learn(5)
        assert shop.publish() == version
        until(lambda version=version: node.view().snapshot.version == version)
        answer = client.get("/search", params={"id": "i3", "k": 5}).raise_for_status().json()
        assert [item["id"] for item in answer["items"]] == shop.expected(version, "i3", 5)[0]


def test_an_address_in_use_is_reported_in_one_sentence(node):
    refusal = pytest.raises(ConfigurationError, match=r"\A[^\n]*another process has this port[^\n]*\Z")
    with socket.create_server(("127.0.0.1", 0)) as other, refusal:
        HttpServer(create_app(node), port=other.getsockname()[1])


def test_an_address_in_use_is_reported_before_the_catalogue_is_opened(tmp_path):
    refusal = pytest.raises(ConfigurationError, match="another process has this port")
    with socket.create_server(("127.0.0.1", 0)) as other, refusal:
        settings = {
            "node": {"bind": f"127.0.0.1:{other.getsockname()[1]}"},
            "catalogues": {"items": {"path": str(tmp_path / "no-such-catalogue")}},
            "models": {"shop": {}},
        }
        serve_node(load(None, {}, settings))


@pytest.mark.parametrize("host", ["..", "a" * 70])
def test_a_host_that_is_no_name_is_refused(node, host):
    with pytest.raises(ConfigurationError, match="check \\[node\\] bind"):
        HttpServer(create_app(node), host=host, port=0)
    with pytest.raises(ConfigurationError, match=r"worker\.bind"):
        serve_metrics(f"{host}:80", CollectorRegistry())


def test_an_address_of_another_machine_is_refused(node):
    with pytest.raises(ConfigurationError, match="no such address"):
        HttpServer(create_app(node), host="192.0.2.1", port=0)


def test_a_node_listens_on_this_machine_only_unless_told_otherwise(node):
    with listening(node) as server:
        assert server.host == "127.0.0.1"


def serve_until_a_signal(folder, output):
    """Serve a shop until a signal comes, with what is printed in a file."""
    sys.stdout = output.open("a", buffering=1)
    shop = Shop(folder)
    shop.publish()
    serve(shop.node(), port=0)
    print("served")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_served_node_cleanly(tmp_path, number):
    output = tmp_path / "output"
    output.touch()
    process = FORKS.Process(target=serve_until_a_signal, args=(tmp_path / "shop", output), daemon=True)
    process.start()
    try:
        until(lambda: re.search(r"url=(\S+)\s", output.read_text()), LIMIT_S)
        url = re.search(r"url=(\S+)\s", output.read_text())[1]
        until(lambda: httpx.get(f"{url}/readyz", verify=False).status_code == 200)
        os.kill(process.pid, number)
        process.join(LIMIT_S)
        assert process.exitcode == 0
        assert output.read_text().rstrip().endswith("served")
    finally:
        process.kill()
        process.join()
