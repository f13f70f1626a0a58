"""The alert of a router fires while its broker stands still, and ends when it goes on."""

from __future__ import annotations

import pytest

from deploy.local import KafkaServer
from deploy.local.ports import free_port
from tests.support.processes import wait_for
from tests.support.servers.prometheus import Prometheus
from tests.support.servers.routes import Route

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
        self.prometheus = Prometheus({"omdml-route": [self.port]}).start()
        self.ends.append(self.prometheus.close)
        return self

    def __exit__(self, *_):
        for end in reversed(self.ends):
            end()

    def _new_topic(self, partitions):
        self.kafka.create_topic(name := f"topic-{len(self.ends)}-{free_port()}", partitions)
        return name

    def router(self, *paused_at):
        """Start a router that pauses itself at this step."""
        router = self.route.router("one", *paused_at, options=("--bind", f"127.0.0.1:{self.port}"))
        self.ends.append(router.close)
        return router

    def fires(self, alert):
        wait_for(lambda: alert in self.prometheus.firing(), alert, FIRES_S)

    def silent(self, alert):
        wait_for(lambda: alert not in self.prometheus.firing(), f"{alert} to be silent", FIRES_S)


@pytest.fixture
def routed(tmp_path):
    with Routed(tmp_path) as routed:
        yield routed


def test_a_frozen_broker_fires_route_stalled_amid_a_transaction(routed):
    routed.silent("OmdmlRouteStalled")
    # Given a router that has read all events there are, in the middle of its first transaction
    routed.route.send(100)
    router = routed.router("paused:begin", 1)
    wait_for(lambda: router.paused, "the router to be in a transaction", 60, router)
    routed.kafka.pause()
    router.resume()
    routed.fires("OmdmlRouteStalled")
    routed.kafka.resume()
    routed.silent("OmdmlRouteStalled")
    routed.route.wait(router)
    routed.route.check()


def test_a_frozen_broker_fires_route_stalled_with_nothing_to_route(routed):
    # Given a router that has routed all events, so that none waits
    routed.route.send(100)
    router = routed.router()
    routed.route.wait(router)
    routed.silent("OmdmlRouteStalled")
    routed.kafka.pause()
    routed.fires("OmdmlRouteStalled")
    routed.kafka.resume()
    routed.silent("OmdmlRouteStalled")
    routed.route.send(100)
    routed.route.wait(router)
    routed.route.check()
