"""A real Prometheus scrapes real processes: rules and board have data, and alerts fire for real faults and no others.

Time in the rules runs faster (:mod:`tests.support.servers.prometheus`), all else is as committed.
"""

from __future__ import annotations

import json
import math
import re
import time

import pytest
import redis

from deploy.local import ValkeyServer
from omdml.feedback import Triplet, encode
from tests.fault.alerts.watched import WORKER
from tests.support.forks import ForkedProcess
from tests.support.processes import ROOT, wait_for
from tests.support.servers.prometheus import faster

pytestmark = pytest.mark.deep

# The longest `for` of an alert, and time for some evaluations.
LONGEST_S = 45 + 5
PANELS = [
    panel for panel in json.loads((ROOT / "deploy/grafana/omdml.json").read_text())["panels"] if panel["type"] != "row"
]
# Panels that show only faults, or that have values only at times.
MAY_BE_EMPTY = {
    "Dead letters an hour",
    "Snapshots refused an hour",
    "Failures of the store",
    "Errors in logs",
    "Oldest change in no checkpoint",
    # The clicks of these tests come from a sender to Kafka, without a node or router between.
    "Until feedback is durable",
    "Events to be routed",
    "Transactions of routers",
}
NOT_ON_KAFKA = "omdml_worker_lag_bytes"


def with_data(prometheus, panel):
    """Whether each query of a panel answers with numbers now."""
    for target in panel["targets"]:
        query = re.sub(r"\$(namespace|instance|model)\b", ".*", target["expr"].replace("$__rate_interval", "1m"))
        numbers = prometheus.ask(faster(query))
        if NOT_ON_KAFKA not in query and not any(map(math.isfinite, numbers)):
            return False
    return True


def test_without_faults_everything_has_data_and_no_alert_fires(watched):
    service = watched.begin()
    wanted = [panel for panel in PANELS if panel["title"] not in MAY_BE_EMPTY]
    lacking = {panel["title"] for panel in wanted}
    # What may be empty must be answered all the same.
    for panel in PANELS:
        with_data(service.prometheus, panel)
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until:
        lacking -= {
            panel["title"] for panel in wanted if panel["title"] in lacking and with_data(service.prometheus, panel)
        }
        assert service.prometheus.firing() == set()
        time.sleep(1)
    assert lacking == set()
    rules = [rule for group in service.prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == faster((ROOT / "deploy/prometheus/rules.yml").read_text()).count("expr:")
    assert {(rule["name"], rule["health"], rule.get("lastError", "")) for rule in rules} == {
        (rule["name"], "ok", "") for rule in rules
    }
    for recorded in (rule["name"] for rule in rules if rule["type"] == "recording"):
        assert any(map(math.isfinite, service.prometheus.ask(recorded))), recorded


def test_a_paused_worker_fires_partition_unowned_and_target_down(watched):
    watched.run("worker", "worker-2", log={"member": "second", "session_timeout_s": 60.0})
    service = watched.begin(log={"session_timeout_s": 60.0})
    wait_for(lambda: service.prometheus.ask("count(omdml_worker_owned_partitions == 1)") == [2.0], "two owners", 30)
    service.silent("OmdmlTargetDown", "OmdmlPartitionUnowned")
    service.worker.pause()
    service.fires("OmdmlPartitionUnowned", "OmdmlTargetDown")
    service.worker.resume()


def test_a_store_fires_alerts_while_it_is_away_and_once_it_is_back(watched):
    service = watched.begin()
    names = ("OmdmlWaitsForDependency", "OmdmlNodeStale", "OmdmlCheckpointsBehind")
    service.silent(*names, "OmdmlStoreChanged", "OmdmlFreshnessSlow")
    service.valkey.stop()
    service.fires(*names)
    service.valkey.start()
    service.fires("OmdmlStoreChanged")


def test_a_request_to_the_store_that_hangs_fires_learning_stalled(watched):
    # As a disk hangs under a store in a folder. By default requests to Redis are given up after two seconds.
    service = watched.begin(store={"url": f"{watched.valkey.url}?socket_timeout=60"})
    service.silent("OmdmlLearningStalled")
    service.valkey.pause()
    service.fires("OmdmlLearningStalled")
    service.valkey.resume()


def test_unknown_items_and_wrong_partitions_fire_dead_letters(watched):
    service = watched.begin()
    service.silent("OmdmlDeadLetters")
    until = time.monotonic() + 60
    sent = 0
    while "OmdmlDeadLetters" not in service.prometheus.firing() and time.monotonic() < until:
        for _ in range(10):
            sent += 1
            # Every second event has an item that does not exist; the others have keys that lead to any partition.
            item = "none" if sent % 2 else "i3"
            service.sink.send(encode(Triplet(model="shop", query="i1", relevant="i2", irrelevant=item)), key=str(sent))
        time.sleep(0.1)
    service.fires("OmdmlDeadLetters", limit_s=1)
    for reason in ("wrong_partition", "unknown_item"):
        assert service.prometheus.ask(f'sum(omdml_worker_dead_letters_total{{reason="{reason}"}})')[0] > 0, reason


def test_added_partitions_fire_partitions_unread(watched):
    service = watched.begin()
    service.silent("OmdmlPartitionsUnread")
    grown = ForkedProcess(
        service.folder,
        "topics",
        "grow",
        "--partitions",
        "4",
        "--config",
        str(service.folder / "worker.toml"),
        name="grow",
    )
    assert grown.wait(60) == 0, grown.said
    service.fires("OmdmlPartitionsUnread")


def test_damage_fires_models_wait_and_snapshot_refused(watched):
    service = watched.begin()
    service.silent("OmdmlModelsWait", "OmdmlSnapshotRefused")
    service.worker.kill()
    client = redis.Redis.from_url(service.valkey.url)
    for key in ("omdml:{shop}:checkpoint", "omdml:{shop}:checkpoint:previous"):
        if data := client.hget(key, "data"):
            client.hset(key, "data", data[:-20] + bytes(20))
    live = client.hgetall("omdml:{shop}:current")
    version = int(live[b"version"])
    blob = client.get(f"omdml:{{shop}}:snapshot:{version}:{live[b'digest'].decode()}")
    client.set(f"omdml:{{shop}}:snapshot:{version + 1}:bad", blob[:-20] + bytes(20))
    client.hset("omdml:{shop}:current", mapping={"version": version + 1, "digest": "bad"})
    client.hincrby("omdml:{shop}:current", "serial", 1)
    service.jobs[WORKER].clear()
    again = service.run("worker")
    service.prometheus.look_again()
    wait_for(lambda: "model_waits" in again.said, "the model to wait", 60, again)
    service.fires("OmdmlModelsWait", "OmdmlSnapshotRefused")


def test_two_groups_on_one_store_fire_fenced(watched):
    service = watched.begin()
    service.silent("OmdmlFenced")
    service.run("worker", "worker-2", log={"group": "another"})
    service.prometheus.look_again()
    service.fires("OmdmlFenced")


def test_nodes_of_two_stores_fire_nodes_disagree(watched):
    service = watched.begin()
    service.silent("OmdmlNodesDisagree")
    with ValkeyServer() as other:
        other.ask(f"REPLICAOF 127.0.0.1 {service.valkey.port}")
        copied = redis.Redis.from_url(other.url)
        wait_for(lambda: copied.exists("omdml:{shop}:current"), "the copy", 30)
        other.ask("REPLICAOF NO ONE")
        second = service.run("node", "node-2", url=other.url)
        service.prometheus.look_again()
        wait_for(lambda: len(service.prometheus.ask("omdml_node_snapshot_serial")) == 2, "two nodes", 30, second)
        service.load.end()
        service.fires("OmdmlNodesDisagree")
        second.close()
