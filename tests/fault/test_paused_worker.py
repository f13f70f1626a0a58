"""A worker that stands still for longer than its session timeout, as a virtual machine that is paused, goes on."""

from __future__ import annotations

import pytest

from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.stores.opening import open_store
from tests.fault.chaos.faults import FAULTS, trial
from tests.fault.chaos.servers import Servers
from tests.fault.load import Load
from tests.support.deep import deep_after
from tests.support.processes import Process, wait_for
from tests.support.worlds import catalogue

pytestmark = pytest.mark.xdist_group("paused workers")
LIMIT_S = 180.0


@pytest.fixture(scope="module")
def servers():
    with Servers() as started:
        yield started


@pytest.mark.parametrize("name", deep_after(1, ["paused", "paused-alone"]))
def test_a_paused_worker_joins_again_and_every_event_is_learned_once(name, servers, tmp_path):
    result = trial(FAULTS[name], 1, 0, servers, tmp_path)
    assert (result.verdict.lost, result.verdict.doubled) == (0, 0)


@pytest.mark.deep
def test_paused_cut_off_and_restored_in_one_rebalance_nothing_is_lost(servers, tmp_path):
    result = trial(FAULTS["paused-cut"], 1, 0, servers, tmp_path)
    assert (result.verdict.lost, result.verdict.doubled) == (0, 0)


def test_a_paused_worker_whose_member_name_was_taken_ends_and_says_so(servers, tmp_path):
    # Given a worker that is paused, and another process with the same log.member
    topic, url = "twins", f"{servers.store('valkey').url}?prefix=twins"
    servers.kafka.create_topic(topic)
    catalogue(tmp_path / "items")
    path = tmp_path / "omdml.toml"
    path.write_text(
        f'[log]\nkind = "kafka"\nservers = "{servers.kafka.servers}"\ntopic = "{topic}"\nmember = "one"\n'
        f'[store]\nurl = "{url}"\n[catalogues.items]\npath = "items"\n'
        '[models.shop]\nlearner = "lomdml"\nrank = 3\n[guard]\non = false\n'
    )
    store, sink = open_store(url), KafkaSink(KafkaOptions(servers=servers.kafka.servers), topic=topic)
    first = Process(tmp_path, "worker", "--config", str(path), name="first")
    load, processes = Load(sink), [first]
    try:
        wait_for(lambda: store.peek("shop"), "the first checkpoint", LIMIT_S, first)
        first.pause()
        version = store.peek("shop").version
        second = Process(tmp_path, "worker", "--config", str(path), name="second")
        processes.append(second)
        wait_for(lambda: store.peek("shop").version > version, "the second process to learn", LIMIT_S, second)
        # When the paused one goes on, it ends with the reason, and the other one goes on learning
        first.resume()
        assert first.wait(LIMIT_S) == 3
        assert "another process took the place of member 'one'" in first.said
        version = store.peek("shop").version
        wait_for(lambda: store.peek("shop").version > version, "the second process to go on", LIMIT_S, second)
        assert load.end() > version
        assert second.stop() == 0
    finally:
        load.end()
        sink.close()
        for process in processes:
            process.close()
