"""The alert of a router fires while its broker stands still, and ends when it goes on."""

from __future__ import annotations

import pytest

from deploy.local import KafkaServer
from deploy.local.ports import free_port
from tests.support.processes import wait_for
from tests.support.prometheus import Prometheus
from tests.support.routes import Route

pytestmark = pytest.mark.deep

FIRES_S = 120


class Routed:
    """A router under a Prometheus, on a broker of its own."""

    def __init__(self, folder):
        self.kafka = KafkaServer()
        self.folder, self.port = folder, free_port()
        self.ends = []

    def __enter__(self):
        self.ends.append(self.kafka.start().close)
        self.route = Route(self.folder, self.kafka, self._new_topic)
        self.ends.append(self.route.__exit__)
        self.router = self.route.router(options=("--bind", f"127.0.0.1:{self.port}"))
        self.ends.append(self.router.close)
        self.route.send(100)
        self.route.wait(self.router)
        self.prometheus = Prometheus({"omdml-route": [self.port]}).start()
        self.ends.append(self.prometheus.close)
        wait_for(lambda: self.asked("sum(omdml_route_events_total)") == [100.0], "a scrape", 30, self.router)
        return self

    def __exit__(self, *_):
        for end in reversed(self.ends):
            end()

    def _new_topic(self, partitions):
        self.kafka.create_topic(name := f"topic-{len(self.ends)}-{free_port()}", partitions)
        return name

    def asked(self, query):
        return self.prometheus.ask(query)

    def fires(self, alert):
        wait_for(lambda: alert in self.prometheus.firing(), alert, FIRES_S)

    def silent(self, alert):
        wait_for(lambda: alert not in self.prometheus.firing(), f"{alert} to be silent", FIRES_S)


@pytest.fixture
def routed(tmp_path):
    with Routed(tmp_path) as routed:
        yield routed


def test_a_broker_that_stands_still(routed):
    routed.silent("OmdmlRouteStalled")
    # Given a backlog, of which the router knows
    routed.router.pause()
    routed.route.send(30_000)
    routed.router.resume()
    wait_for(lambda: routed.asked("sum(omdml_route_lag_offsets) > 0"), "a lag", 60, routed.router)
    routed.kafka.pause()
    routed.fires("OmdmlRouteStalled")
    routed.kafka.resume()
    routed.silent("OmdmlRouteStalled")
    routed.route.wait(routed.router)
    routed.route.check()
