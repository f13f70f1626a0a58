"""Items and queries that bring a picture or words to a node, and thumbnails."""

from __future__ import annotations

import base64
import io
import json

import pytest
from PIL import Image

from tests.support.catalogues.products import COUNT, TEXT, described_catalogue, drawn, png_that_says
from tests.support.shops import Shop, refused

PRODUCT, PICTURE = drawn()[7]
BASE64 = base64.b64encode(PICTURE).decode()


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path, items=described_catalogue)


def first(answer):
    return answer.raise_for_status().json()["items"][0]


def test_a_search_by_a_picture_finds_it(client):
    result = first(client.post("/search", json={"picture": BASE64, "text": {TEXT: PRODUCT.description}, "k": 3}))
    assert result["id"] == PRODUCT.id
    assert result["distance"] == pytest.approx(0, abs=1e-6)
    by_picture = client.post("/search", json={"picture": BASE64, "k": 3}).json()["items"]
    assert PRODUCT.id in [item["id"] for item in by_picture]


def test_a_search_by_words_finds_what_is_described_so(client):
    answer = client.post("/search", json={"text": {TEXT: PRODUCT.description}, "k": 5}).json()
    assert len(answer["items"]) == 5
    several = client.post("/search", json={"queries": [{"text": {TEXT: "red mug"}}, {"id": PRODUCT.id}], "k": 2})
    assert [len(items) for items in several.json()["answers"]] == [2, 2]
    beside = client.post("/search", json={"id": PRODUCT.id, "text": {TEXT: "red mug"}, "k": 2})
    assert len(beside.json()["items"]) == 2


def test_the_list_of_items_says_what_a_search_may_bring(client):
    describes = client.get("/items", params={"limit": 1}).json()["describes"]
    assert (describes["texts"], describes["picture"]) == ([TEXT], True)


def test_an_item_that_is_put_by_picture_and_words_is_found_and_shown(client):
    body = {"picture": BASE64, "text": {TEXT: PRODUCT.description}, "attributes": {"price": 3}}
    assert client.put("/items/new", json=body).raise_for_status().json()["put"] == 1
    items = client.get("/search", params={"id": PRODUCT.id, "k": 1}).json()["items"][0]
    assert (items["id"], items["distance"]) == ("new", pytest.approx(0, abs=1e-6))
    shown = client.get("/picture", params={"id": "new"}).raise_for_status()
    assert (shown.headers["content-type"], Image.open(io.BytesIO(shown.content)).size) == ("image/webp", (64, 64))
    assert client.put("/items/raw", content=PICTURE, headers={"content-type": "image/png"}).json()["put"] == 1
    line = json.dumps({"id": "line", "picture": BASE64}).encode()
    assert client.post("/items", content=line).json()["put"] == 1
    assert client.delete("/items/new").json()["deleted"] == 1
    refused(client.get("/picture", params={"id": "new"}), 404, "no_picture")


def test_pictures_and_words_that_cannot_be_described_are_refused(client):
    bomb = base64.b64encode(png_that_says(60_000, 60_000)).decode()
    refusal = refused(client.post("/search", json={"picture": bomb}), 400, "bad_picture")
    assert "16,000,000 pixels" in refusal
    refused(client.put("/items/x", json={"picture": bomb}), 400, "bad_picture")
    refused(client.post("/search", json={"picture": base64.b64encode(b"x" * 99).decode()}), 400, "bad_picture")
    refused(client.post("/search", json={"picture": "not base64!"}), 400, "invalid")
    refused(client.post("/search", json={"text": {TEXT: "xyzzy"}}), 400, "no_known_word")
    refused(client.post("/search", json={"text": {"title": "red"}}), 400, "invalid")
    large = base64.b64encode(bytes(7 << 20)).decode()
    refused(client.post("/search", json={"picture": large}), 413, "oversize")
    refused(client.post("/search", json={"features": {"color": [0.5] * 600_000}}), 413, "oversize")
    two = {"queries": [{"picture": BASE64}, {"picture": BASE64}]}
    refused(client.post("/search", json=two), 413, "oversize")
    lines = b"\n".join(json.dumps({"id": f"i{n}", "picture": "AAAA"}).encode() for n in range(101))
    refused(client.post("/items", content=lines), 413, "oversize")


def test_the_list_of_items_says_where_each_thumbnail_is(client):
    answer = client.get("/items", params={"limit": 3, "offset": 2}).json()
    assert (answer["pictures"], answer["atlas"], answer["cells"]) == (
        True,
        {"side": 64, "cells": 16},
        [[0, 2], [0, 3], [0, 4]],
    )
    atlas = client.get("/atlas", params={"first": 0}).raise_for_status()
    assert Image.open(io.BytesIO(atlas.content)).size == (1024, 1024)
    refused(client.get("/atlas", params={"first": 1}), 404, "no_picture")
    shown = client.get("/picture", params={"id": PRODUCT.id}).raise_for_status()
    assert Image.open(io.BytesIO(shown.content)).size == (64, 64)
    client.put(f"/items/{PRODUCT.id}", json={"picture": BASE64}).raise_for_status()
    answer = client.get("/items", params={"limit": COUNT}).json()
    assert answer["cells"][answer["items"].index(PRODUCT.id)] is None
