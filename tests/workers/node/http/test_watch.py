"""What a node shows to watchers: items, pictures, steps, kept versions, live events, and the console's files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import threading
from contextlib import contextmanager
from os.path import dirname, normpath
from pathlib import Path

import pytest

from omdml.errors import ConfigurationError
from omdml.workers.node.attributes.table import Attributes
from omdml.workers.node.http.endpoints import console, watch
from omdml.workers.node.pictures import Pictures
from tests.support.nodes import serves
from tests.support.shops import asking, client_of, listening, refused
from tests.support.waiting import until

PNG = b"\x89PNG\r\n\x1a\n of i5"
UPLOT = {
    "uplot/uplot.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot/uplot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


@contextmanager
def streaming(server, **parameters):
    """The lines of a stream of events, as they come."""
    with (
        client_of(server) as client,
        client.stream("GET", "/events", params=parameters) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        assert next(lines) == "retry: 1000"
        yield lines


def next_step(lines):
    """Read the next event of the stream."""
    data = next(line for line in lines if line.startswith("data: "))
    return json.loads(data.removeprefix("data: "))


def learn(shop, node):
    """Have 20 more comparisons go live."""
    shop.learn()
    version = shop.publish()
    until(serves(node, version))


def test_items_come_in_parts_and_are_found_by_a_part_of_their_id(shop, client):
    body = client.get("/items", params={"offset": 118, "limit": 5}).raise_for_status().json()
    assert body == {
        "model": "shop",
        "items": ["i118", "i119"],
        "total": 120,
        "position": 0,
        "pictures": False,
        "attributes": [],
        "describes": {"texts": [], "picture": False, "vectors": dict(shop.catalogue.raw_dims)},
    }
    answer = client.get("/items", params={"find": "I11", "limit": 3}).json()
    assert (answer["items"], answer["total"]) == (["i11", "i110", "i111"], 11)
    assert "limit" in refused(client.get("/items?limit=100000"), 400, "invalid")
    answer = client.get("/items", params={"id": "i11"}).json()
    assert (answer["items"], answer["total"]) == (["i11"], 1)
    assert client.get("/items", params={"id": "nobody"}).json()["items"] == []


def test_items_are_listed_with_their_labels_and_found_by_them(shop):
    attributes = Attributes.of_items([("i5", {"label": "Blue Mug"}), ("i7", {"colour": "blue"})])
    with shop.serving(attributes=lambda model: attributes) as node, asking(node) as client:
        answer = client.get("/items", params={"offset": 5, "limit": 3}).json()
        assert (answer["items"], answer["labels"]) == (["i5", "i6", "i7"], ["Blue Mug", None, None])
        answer = client.get("/items", params={"find": "blue"}).json()
        assert (answer["items"], answer["labels"], answer["total"]) == (["i5"], ["Blue Mug"], 1)


def test_a_version_that_is_kept_can_answer_though_another_is_live(shop, node, client):
    learn(shop, node)
    body = client.post("/search", json={"id": "i5", "k": 5, "version": 0}).raise_for_status().json()
    ids, distances = shop.expected(0, "i5", 5)
    assert [item["id"] for item in body["items"]] == ids
    assert [item["distance"] for item in body["items"]] == pytest.approx(distances.tolist(), rel=1e-4)
    assert client.get("/search", params={"id": "i5", "version": 0, "k": 5}).json()["items"] == body["items"]
    assert client.get("/search", params={"id": "i5"}).json()["version"] == 20
    message = refused(client.get("/search?id=i5&version=7"), 404, "not_kept")
    assert "version 7 is not kept; GET /models/shop/history" in message


def test_a_kept_version_whose_bytes_are_damaged_is_refused(shop, node, client):
    snapshot = shop.snapshot()
    learn(shop, node)
    shop.damage(snapshot)
    assert "damaged" in refused(client.get("/search?id=i5&version=0"), 500, "corrupt")


def test_history_steps_and_a_look_into_a_version_are_reported(shop, node, client):
    learn(shop, node)
    lines = client.get("/models/shop/history").raise_for_status().json()["lines"]
    assert [line["version"] for line in lines] == [0, 20]
    assert [line["version"] for line in client.get("/models/shop/history?last=1").json()["lines"]] == [20]
    steps = client.get("/models/shop/steps").raise_for_status().json()["steps"]
    assert [step["version"] for step in steps][-1] == 20
    inspected = client.get("/models/shop/inspect").raise_for_status().json()
    assert (inspected["version"], inspected["learner"], inspected["weighed"]) == (20, "lomdml", "modality")
    assert set(inspected["weights"]) == set(shop.catalogue.dims)
    assert client.get("/models/shop/inspect?version=0").json()["version"] == 0
    assert "no version 7 is kept" in refused(client.get("/models/shop/inspect?version=7"), 404, "not_kept")
    for path in ("history", "steps", "inspect"):
        assert "did you mean" in refused(client.get(f"/models/shpo/{path}"), 404, "unknown_model")


def test_a_stream_reports_the_live_version_first_and_then_each_new_one(shop, node):
    with listening(node) as server, streaming(server, model="shop") as lines:
        assert next_step(lines)["version"] == 0
        learn(shop, node)
        step = next_step(lines)
        assert (step["model"], step["version"], step["what"]) == ("shop", 20, "new_version")
        learn(shop, node)
        assert next_step(lines)["version"] == 40


def test_a_withheld_version_and_drift_are_reported_in_the_stream(shop, node):
    with listening(node) as server, streaming(server, model="shop") as lines:
        assert next_step(lines)["version"] == 0
        shop.learn()
        shop.store.publish(shop.snapshot(), shop.epoch, "its norms grew")
        remark = next_step(lines)
        assert (remark["what"], remark["version"], remark["reason"]) == ("withheld", 20, "its norms grew")
        shop.store.note("shop", shop.epoch, "drift", "mistakes rose")
        remark = next_step(lines)
        assert (remark["what"], remark["version"], remark["reason"]) == ("drift", 0, "mistakes rose")
        # A remark is reported once.
        learn(shop, node)
        assert next_step(lines)["what"] == "new_version"


def test_streams_end_when_the_server_stops(node):
    with listening(node) as server, streaming(server) as lines:
        timer = threading.Timer(0.2, server.stop)
        timer.start()
        assert list(lines)[-1] == ""


def test_the_head_of_a_stream_ends_and_its_connection_is_free_again(node, monkeypatch):
    monkeypatch.setattr(watch, "MAX_STREAMS", 1)
    with listening(node) as server, client_of(server, timeout=20) as client:
        for _ in range(2):
            head = client.head("/events?model=shop").raise_for_status()
            assert head.headers["content-type"].startswith("text/event-stream")
            assert client.get("/healthz").status_code == 200
        with streaming(server) as lines:
            assert next_step(lines)["model"] == "shop"


def test_more_streams_than_a_node_keeps_open_are_refused(node, monkeypatch):
    monkeypatch.setattr(watch, "MAX_STREAMS", 1)
    with listening(node) as server, client_of(server) as client:
        with streaming(server):
            assert "1 streams of events are open" in refused(client.get("/events"), 503, "busy")
        assert "did you mean 'shop'" in refused(client.get("/events?model=shpo"), 404, "unknown_model")


def test_streams_that_are_asked_for_at_once_are_counted_too(node, monkeypatch):
    monkeypatch.setattr(watch, "MAX_STREAMS", 3)
    ask = b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with listening(node) as server, client_of(server) as client:
        sockets = [socket.create_connection((server.host, server.port)) for _ in range(12)]
        for connection in sockets:
            connection.sendall(ask)
        answers = [connection.recv(12) for connection in sockets]
        assert sorted(answers) == [b"HTTP/1.1 200"] * 3 + [b"HTTP/1.1 503"] * 9
        for connection in sockets:
            connection.close()
        # If their clients have gone, I expect room for others.
        until(lambda: stream_status(client) == 200)


def stream_status(client):
    """The status with which a node answers a request for a stream, which then ends."""
    with client.stream("GET", "/events") as response:
        return response.status_code


def test_pictures_are_served_by_the_id_of_an_item_and_nothing_else_is(tmp_path, node):
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "i5.png").write_bytes(PNG)
    (folder / "i6.svg").write_text("<svg><script>alert(1)</script></svg>")
    (folder / ".hidden.png").write_bytes(PNG)
    (tmp_path / "secret.png").write_bytes(PNG)
    os.mkfifo(folder / "i7.png")
    pictures = Pictures(folder, "catalogues.items.pictures")
    with listening(node, pictures=lambda model: pictures) as server, client_of(server) as client:
        assert client.get("/items?limit=1").json()["pictures"] is True
        response = client.get("/picture", params={"id": "i5"})
        assert (response.content, response.headers["content-type"]) == (PNG, "image/png")
        assert response.headers["x-content-type-options"] == "nosniff"
        for name in ("i6", "i7", "i8", "../secret", "/etc/hostname", ".hidden", "i5\0", "i5.png", "x" * 5000):
            refused(client.get("/picture", params={"id": name}), 404, "no_picture")


def test_a_node_without_pictures_says_so_and_a_folder_that_is_none_is_named(client, tmp_path):
    assert "'i5' has no picture" in refused(client.get("/picture?id=i5"), 404, "no_picture")
    with pytest.raises(ConfigurationError, match=r"catalogues\.items\.pictures is .*nowhere.*, expected a folder"):
        Pictures(tmp_path / "nowhere", "catalogues.items.pictures")


def test_the_console_is_served_with_a_policy_that_lets_nothing_else_in(client):
    assert client.get("/").headers["location"] == "console/"
    page = client.get("/console/").raise_for_status()
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    names = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert "main.js" in names
    for name in names:
        assert client.get(f"/console/{name}").raise_for_status().content == console.FILES[name]
    assert "'nothing.js'" in refused(client.get("/console/nothing.js"), 404, "not_found")
    assert client.get("/console/..%2Fapi.py").status_code == 404


def test_modules_of_the_console_import_only_files_that_are_there():
    imported = set()
    for name, content in console.FILES.items():
        text = content.decode()
        if name.startswith("uplot"):
            continue
        for module in re.findall(r'from "([^"]+)"', text):
            path = normpath(f"{dirname(name)}/{module}").lstrip("/")
            assert path in console.FILES, name
            imported.add(path)
        assert set(re.findall(r"https?://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}, name
    assert len(imported) > 5


def test_the_chart_library_is_the_release_whose_licence_lies_beside_it():
    for name, digest in UPLOT.items():
        assert hashlib.sha256(console.FILES[name]).hexdigest() == digest
    assert b"v1.6.32" in console.FILES["uplot/uplot.min.js"][:400]
    assert "MIT License" in (Path(console.FOLDER) / "uplot/LICENSE").read_text()
