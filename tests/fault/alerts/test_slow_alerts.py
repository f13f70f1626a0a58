"""Alerts of what goes wrong slowly fire for it: slow freshness, hostile feedback, failing searches.

Each fault happens to the real daemon under the real Prometheus, as in test_alerts.py.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from omdml.feedback import Triplet, encode
from tests.fault.alerts.starved import StarvedProcess, StutteringProcess, flood
from tests.fault.alerts.watched import NODE, Searcher
from tests.fault.asking import version_served
from tests.support.processes import wait_for
from tests.support.servers.prometheus import Prometheus
from tests.support.worlds import ITEMS, items, triplets

pytestmark = pytest.mark.deep

FIRES_S = 180


def while_it_lasts(service, name, send):
    """Have ``send`` called again and again until an alert fires."""
    until = time.monotonic() + FIRES_S
    while name not in service.prometheus.firing() and time.monotonic() < until:
        for _ in range(50):
            send()
        time.sleep(0.05)
    service.fires(name, limit_s=1)


def test_a_worker_paused_again_and_again_fires_freshness_slow(watched):
    service = watched.begin()
    service.silent("OmdmlFreshnessSlow")
    stuttering = StutteringProcess(service.worker, paused_s=3.0, runs_s=1.0)
    service.ends.append(stuttering.end)
    service.fires("OmdmlFreshnessSlow", limit_s=FIRES_S)


def test_a_worker_that_falls_behind_fires_lag_will_outlive_retention(watched):
    service = watched.begin()
    starved = StarvedProcess(service.worker)
    service.ends.append(starved.end)
    # An hour of the rule is half a minute here, and the quarter of an hour for which it must last longer is 7.5 s.
    with Prometheus(service.jobs, times=120) as prometheus:
        flood(service.kafka.servers, service.topic, seconds=45)
        wait_for(lambda: "OmdmlLagWillOutliveRetention" in prometheus.firing(), "the alert", FIRES_S)
        starved.end()
        wait_for(lambda: "OmdmlLagWillOutliveRetention" not in prometheus.firing(), "the alert to end", FIRES_S)


def test_a_node_started_while_the_store_is_away_fires_search_errors(watched):
    service = watched.begin()
    service.silent("OmdmlSearchErrors")
    service.node.kill()
    service.valkey.stop()
    service.jobs[NODE].clear()
    service.run("node", "node-2")
    (port,) = service.jobs[NODE]
    service.prometheus.look_again()
    searcher = Searcher(port)
    service.ends.append(searcher.end)
    service.fires("OmdmlSearchErrors", limit_s=FIRES_S)
    assert version_served(port) is None
    service.valkey.start()
    wait_for(lambda: version_served(port) is not None, "answers", 60)
    service.silent("OmdmlSearchErrors")


def test_robots_that_click_what_does_not_fit_fire_guard_holds(watched):
    # Given a model that has learned enough for the guard to judge by
    service = watched.begin(pause_s=0.03)
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


def test_clicks_that_no_longer_mean_anything_fire_mistakes_rise(watched):
    service = watched.begin(pause_s=0.03)
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
