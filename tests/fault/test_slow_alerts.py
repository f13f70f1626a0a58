"""Alerts of what goes wrong slowly fire for it: lag, slow answers, hostile feedback, failing searches, routers.

Each fault happens to the real daemon under the real Prometheus, as in test_alerts.py.
"""

from __future__ import annotations

import threading
import time

import httpx
import numpy as np
import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from omdml.feedback import Triplet, encode
from tests.fault.asking import version_served
from tests.fault.watched import NODE, Searches
from tests.support.processes import free_port, wait_for
from tests.support.prometheus import Prometheus
from tests.support.routes import Route
from tests.support.worlds import ITEMS, items, triplets

pytestmark = pytest.mark.deep

FIRES_S = 180


class Stutters(threading.Thread):
    """A process on a machine that gives its processor away again and again, until :meth:`end`."""

    def __init__(self, process, paused_s, runs_s):
        super().__init__()
        self.process, self.paused_s, self.runs_s, self.enough = process, paused_s, runs_s, threading.Event()
        self.start()

    def run(self):
        while not self.enough.wait(self.runs_s):
            self.process.pause()
            # How long the pause lasts is the fault.
            time.sleep(self.paused_s)
            self.process.resume()

    def end(self):
        self.enough.set()
        self.join()


def while_it_lasts(service, name, send):
    """Have ``send`` called again and again until an alert fires."""
    until = time.monotonic() + FIRES_S
    while name not in service.prometheus.firing() and time.monotonic() < until:
        for _ in range(50):
            send()
        time.sleep(0.05)
    service.fires(name, limit_s=1)


def test_events_of_hours_ago_that_a_worker_cannot_take(watched):
    # A model in memory is learned on while the store is away. One that is not must wait for its checkpoint.
    service = watched.begin(models__other={"learner": "lomdml", "rank": 3})
    service.load.end()
    wait_for(lambda: max(service.prometheus.ask("omdml_worker_lag_seconds")) == 0, "all to be taken", 60)
    service.silent("OmdmlLagHigh", "OmdmlLagWillOutliveRetention")
    service.valkey.stop()
    producer = KafkaProducer(bootstrap_servers=service.kafka.servers)
    event = encode(Triplet(model="other", query="i1", relevant="i2", irrelevant="i3"))
    two_hours_ago = int((time.time() - 7200) * 1000)
    producer.send(service.topic, event, key=b"other", timestamp_ms=two_hours_ago).get(60)
    producer.close()
    service.fires("OmdmlLagHigh", "OmdmlLagWillOutliveRetention", limit_s=FIRES_S)
    service.valkey.start()
    service.silent("OmdmlLagHigh")


def test_a_worker_whose_processor_is_taken_away_again_and_again(watched):
    service = watched.begin()
    service.silent("OmdmlFreshnessSlow")
    stutters = Stutters(service.worker, paused_s=3.0, runs_s=1.0)
    service.ends.append(stutters.end)
    service.fires("OmdmlFreshnessSlow", limit_s=FIRES_S)


def test_a_node_that_gets_little_of_a_processor(watched):
    service = watched.begin()
    service.silent("OmdmlSearchSlow")
    # What waits in the socket is not measured: the pauses must come amid the answers, so the node runs briefly.
    service.ends += [Searches(service.port).end for _ in range(6)]
    stutters = Stutters(service.node, paused_s=0.3, runs_s=0.01)
    service.ends.append(stutters.end)
    service.fires("OmdmlSearchSlow", limit_s=FIRES_S)


def test_a_node_that_starts_while_the_store_is_away(watched):
    service = watched.begin()
    service.silent("OmdmlSearchErrors")
    service.node.kill()
    service.valkey.stop()
    service.jobs[NODE].clear()
    service.run("node", "node-2")
    (port,) = service.jobs[NODE]
    service.prometheus.look_again()
    searches = Searches(port)
    service.ends.append(searches.end)
    service.fires("OmdmlSearchErrors", limit_s=FIRES_S)
    assert version_served(port) is None
    service.valkey.start()
    wait_for(lambda: version_served(port) is not None, "answers", 60)
    service.silent("OmdmlSearchErrors")


def test_robots_that_click_what_does_not_fit(watched):
    # Given a model that has learned enough for the guard to judge by
    service = watched.begin()
    service.silent("OmdmlGuardHolds")
    wait_for(lambda: (version_served(service.port) or 0) > 6000, "a model to judge", 120)
    service.load.end()
    features, _ = items()
    wrong = iter(np.tile(triplets(5000, seed=3), (40, 1)).tolist())

    def send():
        # Items that bring their vectors judge nothing, so the robots' events are not held out to judge themselves.
        query, near, far = next(wrong)
        vectors = {"new": {name: column[far].tolist() for name, column in features.items()}}
        event = Triplet(model="shop", query=f"i{query}", relevant="new", irrelevant=f"i{near}", features=vectors)
        service.sink.send(encode(event), key="shop")

    while_it_lasts(service, "OmdmlGuardHolds", send)


def test_clicks_that_no_longer_mean_anything(watched):
    service = watched.begin()
    # A minute of the test is twenty of the rule's day, in which mistakes are as usual.
    quiet = time.monotonic() + 60
    wait_for(lambda: time.monotonic() > quiet, "a usual time", 90)
    service.silent("OmdmlMistakesRise")
    service.load.end()
    draw = np.random.default_rng(5)

    def send():
        query, relevant, irrelevant = draw.choice(ITEMS, 3, replace=False).tolist()
        event = Triplet(model="shop", query=f"i{query}", relevant=f"i{relevant}", irrelevant=f"i{irrelevant}")
        service.sink.send(encode(event), key="shop")

    while_it_lasts(service, "OmdmlMistakesRise", send)


def in_sync(kafka, topic, count):
    """Set how many brokers must have what is written to a topic."""
    admin = KafkaAdminClient(bootstrap_servers=kafka.servers)
    try:
        wanted = {"min.insync.replicas": str(count)}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=wanted)])
    finally:
        admin.close()


def test_routers_that_cannot_write_and_routers_that_are_killed(tmp_path, kafka, new_topic):
    with Route(tmp_path, kafka, new_topic) as route:
        port = free_port()
        router = route.router("one", options=("--bind", f"127.0.0.1:{port}"))
        url = f"http://127.0.0.1:{port}"
        try:
            route.send(100)
            route.wait(router)
            with Prometheus({"omdml-route": [port]}) as prometheus:

                def fires(name):
                    wait_for(lambda: name in prometheus.firing(), f"{name} to fire", FIRES_S, None)

                wait_for(lambda: prometheus.ask("sum(up)") == [1.0], "a scrape")
                assert prometheus.firing() == set()
                assert httpx.get(f"{url}/readyz").status_code == 200
                # The feedback topic wants more brokers than there are: the router writes and fails, again and again.
                in_sync(kafka, route.target, 2)
                route.send(100)
                fires("OmdmlRouteStalled")
                fires("OmdmlRouteRepeats")
                in_sync(kafka, route.target, 1)
                route.wait(router)
                wait_for(lambda: "OmdmlRouteStalled" not in prometheus.firing(), "the alert to end", 60)
                router.kill()
                fires("OmdmlNobodyRoutes")
        finally:
            router.close()
        route.check()
