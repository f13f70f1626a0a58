"""A batch of 150 kB that stands for 150 MB, sent to a real broker: workers and routers pass it in bounded memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kafka import KafkaProducer

from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.letters import read_letters
from omdml.streams.stores.opening import open_store
from omdml.workers.configuration.loading import load
from omdml.workers.operate.replay import read_whole
from omdml.workers.wiring.dead_letters import open_letters_to_read
from tests.support.forks import ForkedProcess
from tests.support.processes import Process, wait_for
from tests.support.worlds import catalogue, events

pytestmark = pytest.mark.deep
BYTES, BOMBS = 150 << 20, 2
LIMIT_S = 180.0


def peak_mb(process: Process) -> float:
    """The most memory that a process ever had."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1000


def bomb(servers: str, topic: str, count: int) -> None:
    """Send batches of one event each, which the broker takes because they are small as they are."""
    producer = KafkaProducer(
        bootstrap_servers=servers, compression_type="gzip", max_request_size=2 * BYTES, request_timeout_ms=120_000
    )
    for _ in range(count):
        producer.send(topic, bytes(BYTES), key=b"shop", partition=0).get(120)
    producer.close()


@pytest.mark.parametrize("reader", ["worker", "route"])
def test_a_batch_that_expands_costs_little_memory_and_stops_nothing(reader, kafka, new_topic, valkey_server, tmp_path):
    topic, url = new_topic(), f"{valkey_server.url}?prefix=oversize-{reader}"
    clicks = topic if reader == "worker" else new_topic()
    catalogue(tmp_path / "items")
    path = tmp_path / "omdml.toml"
    path.write_text(
        f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{topic}"\nletters = "{new_topic()}"\n'
        f'[store]\nurl = "{url}"\n[catalogues.items]\npath = "items"\n'
        '[models.shop]\nlearner = "lomdml"\nrank = 3\n[guard]\non = false\n'
    )
    store, sink = open_store(url), KafkaSink(KafkaOptions(servers=kafka.servers), topic=clicks)

    def send(seed: int) -> None:
        for event in events(100, seed):
            sink.send(event, "shop")
        sink.flush()

    processes = [ForkedProcess(tmp_path, "worker", "--config", str(path), name="worker")]
    if reader == "route":
        processes.append(ForkedProcess(tmp_path, "route", "--from", clicks, "--config", str(path), name="route"))
    try:
        send(0)
        wait_for(
            lambda: (saved := store.peek("shop")) and saved.version == 100, "the first events", LIMIT_S, *processes[:1]
        )
        before = [peak_mb(process) for process in processes]
        bomb(kafka.servers, clicks, BOMBS)
        send(1)
        wait_for(lambda: store.peek("shop").version == 200, "what came after the batches", LIMIT_S, *processes[:1])
        grown = [peak_mb(process) - was for process, was in zip(processes, before, strict=True)]
        assert max(grown) < 64, grown
        assert [process.stop() for process in processes] == [0] * len(processes)
    finally:
        sink.close()
        for process in processes:
            process.close()
    source = open_letters_to_read(load(str(path), {}, {}).log)
    letters = list(read_letters(record for records in read_whole(source) for record in records))
    results = [(letter.reason, letter.offset) for letter in letters]
    assert results == [("oversize", 100 + number) for number in range(BOMBS)]
