"""A worker, a node and a router under load, scraped by a real Prometheus, for faults that alerts are for."""

from __future__ import annotations

import json
from pathlib import Path

from deploy.local import ValkeyServer
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from tests.fault.alerts.watched import Searcher, clicks
from tests.fault.asking import version_served
from tests.fault.load import Load
from tests.support.forks import ForkedProcess
from tests.support.processes import free_port, wait_for
from tests.support.servers.prometheus import FASTER, Prometheus
from tests.support.worlds import catalogue

PARTITIONS = 2
JOBS = {"worker": "omdml-worker", "node": "omdml-node", "route": "omdml-route"}
# Seconds that the load pauses, so that it sends fifty events a second.
PAUSE_S = 0.4
# Seconds in the time of the rules: the longest wait and the longest window of an alert, and some more.
LIMIT_S = 1800.0


class WatchedService:
    """A worker, a node and a router on a real Kafka and Valkey, scraped by a real Prometheus, under load."""

    def __init__(self, folder: Path, kafka, new_topic):
        self.folder, self.kafka = folder, kafka
        self.topic, self.origin = new_topic(PARTITIONS), new_topic(1)
        self.ends = []
        self.jobs = {job: [] for job in JOBS.values()}
        # By command.
        self.options, self.ports, self.processes = {}, {}, {}

    def begin(self):
        """Start everything, and return when the node serves what was learned and nothing fires."""
        catalogue(self.folder / "items")
        self.valkey = ValkeyServer(durable=True).start()
        self.ends.append(self.valkey.close)
        options = KafkaOptions(servers=self.kafka.servers)
        self.sink, self.unkeyed = (
            KafkaSink(options, topic=topic, delivery_s=240) for topic in (self.topic, self.origin)
        )
        self.ends += [self.sink.close, self.unkeyed.close]
        for command in ("worker", "node"):
            self.run(command)
        self.load = None
        self.send()
        self.ends.append(self.rest)
        self.learns(50)
        # Nothing was routed so far, though the topic that it is routed to holds events.
        self.run("route", "--from", self.origin, "--begin", "beginning")
        searcher = Searcher(self.ports["node"], pause_s=0.2)
        self.ends.append(searcher.end)
        # What starts is no fault, though in times of the test it takes longer than alerts wait.
        self.prometheus = Prometheus(self.jobs).start()
        self.ends.append(self.prometheus.close)
        self.watch()
        self.silent()
        return self

    # The processes

    def run(self, command, *options):
        """Configure and start a process, which Prometheus does not scrape yet."""
        port = self.ports[command] = free_port()
        settings = {
            "log": {"kind": "kafka", "servers": self.kafka.servers, "topic": self.topic, "member": command},
            "store": {"url": self.valkey.url},
            "catalogues.items": {"path": "items"},
            "models.shop": {"learner": "lomdml", "rank": 3},
        }
        if command == "route":
            options = (*options, "--bind", f"127.0.0.1:{port}")
        else:
            settings[command] = {"bind": f"127.0.0.1:{port}"}
        text = "\n".join(
            f"[{section}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in content.items())
            for section, content in settings.items()
        )
        (self.folder / f"{command}.toml").write_text(text)
        self.options[command] = options
        return self.start(command)

    def start(self, command):
        """Start a process with the settings that it had."""
        words = (command, *self.options[command], "--config", f"{command}.toml")
        process = self.processes[command] = ForkedProcess(self.folder, *words, name=command)
        self.ends.append(process.close)
        return process

    @property
    def worker(self):
        return self.processes["worker"]

    def watch(self):
        """Have Prometheus scrape all of them, and return when it does."""
        for command, job in JOBS.items():
            self.jobs[job].append(self.ports[command])
        self.prometheus.look_again()
        wait_for(lambda: self.prometheus.ask("sum(up)") == [float(len(JOBS))], "scrapes of all", 60)

    # The load

    def send(self, pause_s=PAUSE_S):
        """Send clicks until :meth:`rest`; they are what alerts need to see."""
        self.rest()
        self.load = Load(self.sink, clicks(), pause_s)

    def rest(self):
        """Stop the clicks that :meth:`send` began."""
        if self.load:
            self.load.end()
            self.load = None

    def version(self):
        """The version that the node answers with; 0 if it does not answer."""
        return version_served(self.ports["node"]) or 0

    def learns(self, count=1, limit_s=90):
        """Wait until the node answers with a version of this many more events."""
        least = self.version() + count
        wait_for(lambda: self.version() >= least, f"version {least}", limit_s, self.worker)

    # What Prometheus says

    def fires(self, *names, limit_s=LIMIT_S):
        """Wait until these alerts fire; ``limit_s`` is in the time of the rules, which runs faster."""
        for name in names:
            wait_for(lambda name=name: f"Omdml{name}" in self.prometheus.firing(), f"{name} to fire", limit_s / FASTER)

    def silent(self, limit_s=LIMIT_S):
        """Wait until no alert fires, nor is about to."""
        wait_for(lambda: not self.prometheus.alerts(), "silence", limit_s / FASTER)

    def close(self):
        for end in reversed(self.ends):
            end()
