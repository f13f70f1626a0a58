"""``omdml status`` on a real topic, a real Valkey and a real worker, and with each of them away."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from kafka import KafkaProducer

from omdml.workers.cli import main
from tests.support.forks import ForkedProcess
from tests.support.processes import wait_for
from tests.support.worlds import catalogue, events


@pytest.fixture
def service(kafka, valkey_server, new_topic, tmp_path):
    """A configuration of four partitions, whose first events are in the log."""
    catalogue(tmp_path / "items")
    topic = new_topic(partitions=4)
    (tmp_path / "omdml.toml").write_text(
        f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{topic}"\nmember = "first"\n'
        f'[store]\nurl = "{valkey_server.url}"\n[catalogues.items]\npath = "{tmp_path}/items"\n'
        '[models."user-*"]\nlearner = "lomdml"\nrank = 2\n'
    )
    producer = KafkaProducer(bootstrap_servers=kafka.servers)
    for number in range(8):
        for event in events(3, model=f"user-{number}"):
            producer.send(topic, event, key=b"user-%d" % number)
    producer.close()
    return tmp_path


def seen(folder):
    """The exit code, and the JSON for programs."""
    result = CliRunner().invoke(main, ["status", "--json", "-c", str(folder / "omdml.toml")])
    return result.exit_code, json.loads(result.stdout)


def test_partitions_their_lag_and_owners_are_those_of_the_group_and_the_store(service, valkey_server):
    code, results = seen(service)
    assert code == 0, results["problems"]
    assert (results["log"]["workers"], results["log"]["lag"]) == ([], 24)
    assert {partition["owner"] for partition in results["log"]["partitions"]} == {""}
    assert results["errors"] == 1
    worker = ForkedProcess(service, "worker")
    try:
        wait_for(lambda: seen(service)[1]["log"]["lag"] == 0, "everything learned and saved", 60.0, worker)
        code, results = seen(service)
    finally:
        worker.close()
    assert (code, results["problems"], results["models"]["count"]) == (0, {}, 8)
    assert [name.split(" at ")[0] for name in results["log"]["workers"]] == ["first"]
    partitions = results["log"]["partitions"]
    assert {partition["owner"] for partition in partitions} == set(results["log"]["workers"])
    assert sum(partition["models"] for partition in partitions) == 8
    assert results["store"]["kind"].startswith("Valkey ")
    assert results["store"]["used_bytes"] > 0


def test_without_its_store_the_group_tells_how_far_partitions_are_read(service, valkey_server):
    valkey_server.stop()
    code, results = seen(service)
    assert (code, results["log"]["lag"], results["models"], results["store"]) == (1, 24, None, None)
    assert "is it up, and reachable from here?" in results["problems"]["store"]


def test_without_its_log_the_store_is_shown(service, kafka):
    file = service / "omdml.toml"
    file.write_text(file.read_text().replace(kafka.servers, "127.0.0.1:1"))
    code, results = seen(service)
    assert (code, results["log"], results["letters"]) == (1, None, None)
    assert results["store"]["kind"].startswith("Valkey ")
    assert "127.0.0.1:1" in results["problems"]["log"]
