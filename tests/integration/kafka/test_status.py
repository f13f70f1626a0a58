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
    """The exit code, and what programs get."""
    told = CliRunner().invoke(main, ["status", "--json", "-c", str(folder / "omdml.toml")])
    return told.exit_code, json.loads(told.stdout)


def test_partitions_their_lag_and_owners_are_those_of_the_group_and_the_store(service, valkey_server):
    code, found = seen(service)
    assert code == 0, found["problems"]
    assert (found["log"]["workers"], found["log"]["lag"]) == ([], 24)
    assert {one["owner"] for one in found["log"]["partitions"]} == {""}
    assert found["errors"] == 1
    worker = ForkedProcess(service, "worker")
    try:
        wait_for(lambda: seen(service)[1]["log"]["lag"] == 0, "everything learned and saved", 60.0, worker)
        code, found = seen(service)
    finally:
        worker.close()
    assert (code, found["problems"], found["models"]["count"]) == (0, {}, 8)
    assert [name.split(" at ")[0] for name in found["log"]["workers"]] == ["first"]
    partitions = found["log"]["partitions"]
    assert {one["owner"] for one in partitions} == set(found["log"]["workers"])
    assert sum(one["models"] for one in partitions) == 8
    assert found["store"]["kind"].startswith("Valkey ")
    assert found["store"]["used_bytes"] > 0


def test_without_its_store_the_group_tells_how_far_partitions_are_read(service, valkey_server):
    valkey_server.stop()
    code, found = seen(service)
    assert (code, found["log"]["lag"], found["models"], found["store"]) == (1, 24, None, None)
    assert "is it up, and reachable from here?" in found["problems"]["store"]


def test_without_its_log_the_store_is_shown(service, kafka, tmp_path):
    file = service / "omdml.toml"
    file.write_text(file.read_text().replace(kafka.servers, "127.0.0.1:1"))
    code, found = seen(service)
    assert (code, found["log"], found["letters"]) == (1, None, None)
    assert found["store"]["kind"].startswith("Valkey ")
    assert "127.0.0.1:1" in found["problems"]["log"]
