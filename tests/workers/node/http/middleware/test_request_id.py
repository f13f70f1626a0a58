"""Each answer carries its request's id, and so do the lines of the log about it."""

from __future__ import annotations

import re

import pytest
import structlog

from tests.support.shops import asking, refused

OURS = re.compile("[0-9a-f]{32}")


@pytest.mark.parametrize("path", ["/search?id=i1&k=3", "/search?id=none", "/nowhere", "/metrics"])
def test_an_answer_bears_the_id_that_the_request_brought(client, path):
    assert client.get(path, headers={"X-Request-Id": "edge-1:2/3"}).headers["x-request-id"] == "edge-1:2/3"


@pytest.mark.parametrize("brought", [{}, {"X-Request-Id": "two words"}, {"X-Request-Id": "x" * 129}])
def test_a_request_without_an_id_or_with_a_strange_one_gets_one_of_its_own(client, brought):
    first, second = (client.get("/healthz", headers=brought).headers["x-request-id"] for _ in range(2))
    assert OURS.fullmatch(first)
    assert OURS.fullmatch(second)
    assert first != second


def test_a_failure_is_found_in_the_log_by_its_id(node, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(type(node), "answers", fail)
    with asking(node) as client, structlog.testing.capture_logs() as logs:
        structlog.get_config()["processors"].insert(0, structlog.contextvars.merge_contextvars)
        answer = client.get("/search?id=i1", headers={"X-Request-Id": "mine"})
        refused(answer, 500, "internal")
    assert answer.headers["x-request-id"] == "mine"
    assert "request_id=mine" in answer.json()["message"]
    assert [line["request_id"] for line in logs if line["event"] == "request_failed"] == ["mine"]
