"""The script that a shop's page includes: what people click on reaches the log of a real node as pages."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from omdml.feedback import decode
from omdml.workers.node.http.openapi import openapi
from tests.support.processes import ROOT
from tests.support.shops import client_of, listening, refused, sent

STUB = ROOT / "tests/workers/node/http/browser_stub.js"


def test_the_script_is_served_with_its_type_and_kept_by_browsers(client):
    answer = client.get("/click.js").raise_for_status()
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["cache-control"] == "public, max-age=3600"
    again = client.get("/click.js", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/click.js", headers={"if-none-match": f"W/{answer.headers['etag']}"}).status_code == 304
    assert client.get("/click.js", headers={"if-none-match": '"older"'}).content == answer.content
    assert "/click.js" in openapi()["paths"]


@pytest.mark.skipif(shutil.which("node") is None, reason="node.js is not on PATH: it runs the script")
def test_what_people_click_reaches_the_log_when_they_leave_the_page(shop, node):
    with listening(node) as server, client_of(server) as client:
        script = client.get("/click.js").raise_for_status().text
        # When two results are clicked, another page is looked at, and after the return one more is
        result = subprocess.run(
            ["node", STUB, f"{server.url}/click.js"], input=script, capture_output=True, text=True, timeout=60
        )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {"beacons": 2, "statuses": [202, 202]}
    # Then the log has a page for each time, and the second does not hold what was clicked before
    first, second = [decode(event) for event in sent(shop)]
    assert (first.model, first.query, first.shown, first.clicked) == (
        "shop", "i0", ("i1", "i2", "i3", "i4"), ("i2", "i3"),
    )  # fmt: skip
    assert (second.shown, second.clicked) == (("i1", "i4"), ("i4",))
    # And whose clicks they are, as the page says
    assert first.user == second.user == "anna"


PAGE = {"type": "page", "model": "shop", "query": "i0", "shown": ["i1", "i2", "i3"], "clicked": ["i2"]}


def test_a_page_is_taken_over_http_and_described_there(shop, client):
    assert client.post("/feedback", json=PAGE).json()["accepted"] == 1
    assert [decode(event).shown for event in sent(shop)] == [("i1", "i2", "i3")]
    described = client.get("/schema").json()["components"]["schemas"]["Page"]
    assert set(described["required"]) == {"type", "model", "query", "shown", "clicked"}
    assert described["properties"]["shown"]["maxItems"] == 1000
    feedback = client.get("/schema").json()["paths"]["/feedback"]["post"]["requestBody"]
    assert "page" in feedback["content"]["application/json"]["schema"]["discriminator"]["mapping"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"clicked": ["i9"]}, "invalid"),
        ({"clicked": []}, "empty_list"),
        ({"clicked": ["i1", "i2", "i3"]}, "nothing_compared"),
        ({"shown": ["i1", "i2", "nobody"], "clicked": ["nobody"]}, "unknown_item"),
    ],
)
def test_a_page_that_no_worker_would_learn_is_refused_by_the_node(shop, client, changes, reason):
    refused(client.post("/feedback", json=PAGE | changes), 400, reason)
    assert sent(shop) == []
