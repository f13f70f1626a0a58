"""A worker and a node under load, scraped by a real Prometheus, for tests of alerts."""

from __future__ import annotations

import json
import threading

import httpx
import pytest

from deploy.local import ValkeyServer
from omdml.feedback import Triplet, encode
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from tests.fault.asking import version_served
from tests.fault.load import MOST, Load
from tests.support.forks import ForkedProcess
from tests.support.processes import free_port, wait_for
from tests.support.servers.prometheus import Prometheus
from tests.support.worlds import catalogue, triplets

WORKER, NODE = "omdml-worker", "omdml-node"


def clicks():
    """Endless events with the present time."""
    for query, relevant, irrelevant in triplets(MOST).tolist():
        yield encode(Triplet(model="shop", query=f"i{query}", relevant=f"i{relevant}", irrelevant=f"i{irrelevant}"))


class Searcher(threading.Thread):
    """Almost twenty searches a second at a node, or as many as ``pause_s`` allows, until :meth:`end`."""

    def __init__(self, port, pause_s=0.05):
        super().__init__()
        self.port, self.pause_s, self.enough = port, pause_s, threading.Event()
        self.start()

    def run(self):
        while not self.enough.wait(self.pause_s):
            version_served(self.port)

    def end(self):
        self.enough.set()
        self.join()


class UnknownModelSender(Searcher):
    """Events about a model that is not configured, sent to a node until :meth:`end`."""

    def run(self):
        event = {"type": "triplet", "model": "nothing", "query": "i1", "relevant": "i2", "irrelevant": "i3"}
        while not self.enough.wait(self.pause_s):
            answer = httpx.post(f"http://127.0.0.1:{self.port}/feedback", json=event)
            assert answer.status_code == 400, answer.text


class Watched:
    """A worker and a node on a real Kafka and Valkey, scraped by a real Prometheus, under load."""

    def __init__(self, folder, kafka, topic, valkey):
        self.folder, self.kafka, self.topic, self.valkey = folder, kafka, topic, valkey
        catalogue(folder / "items")
        self.sink = KafkaSink(KafkaOptions(servers=kafka.servers), topic=topic, delivery_s=240)
        self.ends = [self.sink.close]
        self.jobs = {WORKER: [], NODE: []}

    def begin(self, pause_s=0.2, **sections):
        """Start everything, and return when the node serves what was learned.

        The load is what alerts need to see, for as long as they wait. A test that needs much learned asks for a shorter
        ``pause_s``.
        """
        self.worker = self.run("worker", **sections)
        self.node = self.run("node", **sections)
        self.port = self.jobs[NODE][0]
        self.load = Load(self.sink, clicks(), pause_s)
        self.ends.append(self.load.end)
        wait_for(lambda: (version_served(self.port) or 0) > 50, "learning to begin", 60, self.worker)
        self.ends.append(Searcher(self.port, pause_s=0.2).end)
        # What starts is no fault, though in times of the test it takes longer than alerts wait.
        self.prometheus = Prometheus(self.jobs).start()
        self.ends.append(self.prometheus.close)
        wait_for(lambda: self.prometheus.ask("sum(up)") == [float(sum(map(len, self.jobs.values())))], "scrapes")
        # Prometheus looks for targets after five seconds. Until then there is no worker and no node for it, which two
        # alerts are for.
        wait_for(
            lambda: not {"OmdmlNobodyLearns", "OmdmlNobodyAnswers"} & self.prometheus.firing(),
            "Prometheus to know of workers and nodes",
            60,
        )
        return self

    def run(self, command, name="", url="", **sections):
        """One more worker or node, with options over those that all have; Prometheus does not scrape it."""
        port, name = free_port(), name or command
        options = {
            "log": {"kind": "kafka", "servers": self.kafka.servers, "topic": self.topic, "member": name},
            "store": {"url": url or self.valkey.url},
            "catalogues.items": {"path": "items"},
            "models.shop": {"learner": "lomdml", "rank": 3},
        }
        options[command] = {"bind": f"127.0.0.1:{port}"}
        for section, changes in sections.items():
            section = section.replace("__", ".")
            options[section] = options.get(section, {}) | changes
        text = "\n".join(
            f"[{section}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in content.items())
            for section, content in options.items()
        )
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        self.jobs[f"omdml-{command}"].append(port)
        process = ForkedProcess(self.folder, command, "--config", str(path), name=name)
        self.ends.append(process.close)
        return process

    def fires(self, *names, limit_s=90):
        for name in names:
            wait_for(lambda name=name: name in self.prometheus.firing(), f"{name} to fire", limit_s)

    def silent(self, *names):
        """Wait until none of these alerts fires."""
        wait_for(lambda: not set(names) & self.prometheus.firing(), f"{names} to be silent", 15)

    def close(self):
        for end in reversed(self.ends):
            end()


@pytest.fixture
def valkey():
    with ValkeyServer(durable=True) as server:
        yield server


@pytest.fixture
def watched(tmp_path, kafka, new_topic, valkey):
    service = Watched(tmp_path, kafka, new_topic(2), valkey)
    try:
        yield service
    finally:
        service.close()
