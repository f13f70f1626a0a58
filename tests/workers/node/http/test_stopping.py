"""A node that is told to end while its feedback log takes no events logs how many requests it gave up."""

from __future__ import annotations

import threading

import httpx
from structlog.testing import capture_logs

from omdml.streams.memory_log import MemorySink
from omdml.workers.node.http import server as http_server
from tests.support.shops import client_of, listening
from tests.support.waiting import until
from tests.support.worlds import events

REQUESTS = 3


def test_requests_that_are_given_up_as_a_node_ends_are_one_line_of_its_log(shop, monkeypatch, caplog):
    go_on = threading.Event()

    class Away(MemorySink):
        def flush(self, timeout_s=30.0):
            go_on.wait(60)

    monkeypatch.setattr(http_server, "GRACE_S", 0.3)

    def post(server, event):
        with client_of(server) as client:
            try:
                assert client.post("/feedback", content=event).status_code != 202
            except httpx.TransportError:
                return

    # Given requests that a log does not take
    with capture_logs() as logged, shop.serving(sink=Away(shop.log)) as node:
        with listening(node) as server:
            threads = [threading.Thread(target=post, args=(server, event)) for event in events(REQUESTS)]
            for thread in threads:
                thread.start()
            until(lambda: len(server._server.server_state.tasks) == REQUESTS)
        # When the node has been told to end, and did not wait for them any longer
        go_on.set()
        for thread in threads:
            thread.join()
    # Then its log says so in one line
    (line,) = [line for line in logged if line["event"] == "requests_cancelled"]
    assert line["requests"] == REQUESTS
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]
