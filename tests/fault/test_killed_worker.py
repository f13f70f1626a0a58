"""kill -9 at random moments, under load: the end is byte for byte that of a run never killed."""

from __future__ import annotations

import random
import threading
import time

import pytest

from omdml import LOMDML
from streams.files.source import FileSink
from streams.kafka.options import KafkaOptions
from streams.kafka.sink import KafkaSink
from streams.stores.opening import open_store
from tests.fault.load import MOST, Load
from tests.processes import Process, wait_for
from tests.worlds import catalogue, triplets

KILLS = 10


@pytest.fixture(params=["file log and folder", "Kafka and Redis"])
def place(request, tmp_path):
    """(configuration file, store url, sink) of an installation."""
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
    models = '[catalogues.items]\npath = "items"\n[models.shop]\nrank = 3\n'
    path.write_text(f'[log]\n{log}\n[store]\nurl = "{url}"\n{models}')
    yield path, url, sink, items
    sink.close()


def test_ten_kills_under_load_change_nothing(place, tmp_path):
    path, url, sink, items = place
    store, chance = open_store(url), random.Random(7)
    versions, stop = [], threading.Event()

    def watch():
        while not stop.wait(0.002):
            pointer = store.current("shop")
            versions.append(-1 if pointer is None else pointer.version)

    watcher = threading.Thread(target=watch)
    watcher.start()
    load, worker = Load(sink), None
    try:
        for _ in range(KILLS):
            worker = Process(tmp_path, "worker", "--config", str(path), name="worker")
            before = max(versions, default=-1)
            wait_for(lambda before=before: max(versions, default=-1) > before, "a newer version", 40, worker)
            time.sleep(chance.uniform(0, 0.7))
            worker.kill()
        load.end()
        worker = Process(tmp_path, "worker", "--config", str(path), name="worker")
        total = load.send_one()  # its version is live only when all before it are learned again
        sink.flush()
        wait_for(lambda: versions[-1] == total, "all events learned", 60, worker)
        assert worker.stop() == 0, worker.said[-2000:]
    finally:
        if worker:
            worker.close()
        load.end()
        stop.set()
        watcher.join()
    assert versions == sorted(versions)
    twin = LOMDML(dims=dict(items.dims), rank=3)
    twin.learn_many(triplets(MOST)[:total], items.features)
    checkpoint = store.claim("shop").checkpoint
    assert checkpoint.state == twin.to_bytes()
    assert checkpoint.progress["count"] == total
