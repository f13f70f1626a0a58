"""kill -9 at random moments, under load: the end is byte for byte that of a run never killed, nodes never go back."""

from __future__ import annotations

import random
import time

import pytest

from omdml import LOMDML
from omdml.streams.files.source import FileSink
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.stores.opening import open_store
from tests.fault.asking import Asker, version_served
from tests.fault.load import Load
from tests.support.forks import ForkedProcess
from tests.support.processes import free_port, wait_for
from tests.support.worlds import catalogue, learned_of

# `make chaos` kills a hundred times.
KILLS = 5


@pytest.fixture(params=["file log and folder", "Kafka and Redis"])
def place(request, tmp_path):
    """(configuration file, store url, sink, items, port of its node) of an installation."""
    if request.param == "file log and folder":
        log, url, sink = 'kind = "file"', f"dir:{tmp_path}/state", FileSink(tmp_path / "feedback")
    else:
        servers = request.getfixturevalue("kafka").servers
        topic = request.getfixturevalue("new_topic")()
        url = request.getfixturevalue("valkey_server").url
        log = f'kind = "kafka"\nservers = "{servers}"\ntopic = "{topic}"\nmember = "one"\nsession_timeout_s = 6'
        sink = KafkaSink(KafkaOptions(servers=servers), topic=topic)
    items = catalogue(tmp_path / "items")
    path = tmp_path / "omdml.toml"
    models = (
        '[catalogues.items]\npath = "items"\n[models.shop]\nlearner = "lomdml"\nrank = 3\n[guard]\ntolerance = 2.0\n'
    )
    port = free_port()
    node = f'[node]\nbind = "127.0.0.1:{port}"\n'
    path.write_text(f'[log]\n{log}\n[store]\nurl = "{url}"\n{models}{node}')
    yield path, url, sink, items, port
    sink.close()


def test_kills_under_load_change_nothing_and_a_node_answers_throughout(place, tmp_path):
    path, url, sink, items, port = place
    chance, worker = random.Random(7), ForkedProcess(tmp_path, "worker", "--config", str(path), name="worker")
    node = ForkedProcess(tmp_path, "node", "--config", str(path), name="node")
    wait_for(lambda: version_served(port) is not None, "an answer of the node", 60, node)
    load, asker = Load(sink), Asker(port)
    try:
        for _ in range(KILLS):
            before = asker.newest
            wait_for(lambda before=before: asker.newest > before, "an answer under a newer version", 40, worker)
            # The kill comes at any moment, not only right after a publication.
            time.sleep(chance.uniform(0, 0.7))
            worker.kill()
            started = worker.said.count("worker_started")
            worker = ForkedProcess(tmp_path, "worker", "--config", str(path), name="worker")
        load.end()
        # The version of this one is live only when all before it are learned again.
        total = load.send_one()
        sink.flush()
        learned = learned_of(path, open_store(url).secret())
        wait_for(lambda: asker.versions[-1] == len(learned), "an answer that knows every event", 60, worker)
        # All may have been learned before the last kill.
        wait_for(lambda: worker.said.count("worker_started") > started, "the last worker to start", 60, worker)
        assert worker.stop() == 0, worker.said[-2000:]
    finally:
        load.end()
        asker.end()
        for process in (worker, node):
            process.close()
    assert None not in asker.versions
    assert asker.versions == sorted(asker.versions)
    twin = LOMDML(dims=dict(items.dims), rank=3)
    twin.learn_many(learned, items.features)
    checkpoint = open_store(url).claim("shop").checkpoint
    assert checkpoint.state == twin.to_bytes()
    assert (checkpoint.progress["mistakes"]["count"], checkpoint.progress["hold_out"]["count"]) == (
        len(learned),
        total - len(learned),
    )
