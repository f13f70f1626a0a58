"""Alerts of routers fire for real faults: a topic that takes nothing, and a router that is killed."""

from __future__ import annotations

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from deploy.local.ports import free_port
from tests.support.processes import wait_for
from tests.support.prometheus import Prometheus
from tests.support.routes import Route

pytestmark = pytest.mark.deep

ALERTS = {"OmdmlNobodyRoutes", "OmdmlRouteStalled", "OmdmlRouteRepeats"}
FIRES_S = 120


def copies_needed(route, count):
    """Set how many brokers must have a record of the feedback topic; the cluster has one."""
    admin = KafkaAdminClient(bootstrap_servers=route.kafka.servers)
    try:
        wanted = {"min.insync.replicas": str(count)}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, route.target, configs=wanted)])
    finally:
        admin.close()


def test_a_topic_that_takes_nothing_and_then_a_router_that_is_killed(tmp_path, kafka, new_topic):
    port = free_port()
    with Route(tmp_path, kafka, new_topic) as route, Prometheus({"omdml-route": [port]}) as prometheus:
        router = route.router(options=("--bind", f"127.0.0.1:{port}"))
        try:
            route.send(100)
            route.wait(router)
            wait_for(lambda: prometheus.ask("sum(omdml_route_events_total)") == [100.0], "a scrape", 30, router)
            wait_for(lambda: not ALERTS & prometheus.firing(), "silence", 30, router)

            # Given a feedback topic that needs more brokers than there are
            copies_needed(route, 2)
            route.send(50)
            for alert in ("OmdmlRouteStalled", "OmdmlRouteRepeats"):
                wait_for(lambda alert=alert: alert in prometheus.firing(), alert, FIRES_S, router)

            # Then the router goes on by itself when the topic takes events again, and each is there once
            copies_needed(route, 1)
            route.wait(router)
            route.check()
            wait_for(lambda: not ALERTS & prometheus.firing(), "silence", FIRES_S, router)

            router.kill()
            wait_for(lambda: "OmdmlNobodyRoutes" in prometheus.firing(), "OmdmlNobodyRoutes", FIRES_S)
        finally:
            router.close()
