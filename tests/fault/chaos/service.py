"""An installation under load: models over partitions, two workers and a node as processes, and who watches them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import redis

from omdml import DEFAULT_LEARNER
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.stores.opening import open_store
from tests.fault.asking import version_served
from tests.fault.chaos.load import RATE, Load, Sender
from tests.fault.chaos.servers import Servers
from tests.fault.chaos.watch import Watch, learning, serving
from tests.support import records
from tests.support.oracle import GUARD_EVERY, Oracle, Placement, drawn, murmur2
from tests.support.processes import Process, free_port, wait_for
from tests.support.worlds import catalogue

PARTITIONS, WORKERS, SENDERS, RANK = 4, 2, 2, 3
# The worker whose connections go through proxies, and one more worker, which only some faults need.
FAR, GUEST = 0, WORKERS
NODE = "node"
# The longest time until anything goes on.
LIMIT_S = 90.0
ASSIGNED = "event=partition_assigned"
_topics = itertools.count()


def model_in(partition: int) -> str:
    """A model whose events go to this partition."""
    names = (f"shop-{number}" for number in itertools.count())
    return next(name for name in names if murmur2(name.encode()) % PARTITIONS == partition)


MODELS = [model_in(partition) for partition in range(PARTITIONS)]
LEARNER = {model: (DEFAULT_LEARNER, "lomdml")[number % 2] for number, model in enumerate(MODELS)}
# A model in parts, beside these: all partitions learn it.
HOT = "hot"


class Service:
    """As a context manager it is learning and serving on entry; whatever runs is ended on exit.

    Parameters
    ----------
    url, far_url
        Address of the store, and that by way of the detour.
    entry
        The module that workers run.

    Attributes
    ----------
    injected
        Faults so far.
    assigned
        How often each worker had been given a partition when it was started last.
    store_server
        The server that models are kept in, if it is one.
    forgotten
        How many events a store's checkpoints lacked each time that it came back.
    away
        Numbers of workers that a fault has ended, and starts again itself.
    routers
        Processes that copy another topic into the log, if a fault is about these.
    learning, serving
        Who watches the versions in the store, and those that the node answers with.
    models, learner, rate
        Names of the models, what each learns with, and events a second of all of them.
    watched
        The models that both watch.
    process
        How workers, nodes and routers are started.
    """

    process: type[Process] = Process
    models: Sequence[str] = [*MODELS, HOT]
    learner: Mapping[str, str] = {**LEARNER, HOT: "dca"}
    rate = RATE

    @property
    def watched(self) -> Sequence[str]:
        return self.models

    def __init__(
        self, folder: Path, servers: Servers, url: str, far_url: str, entry: str = "omdml.workers.cli"
    ) -> None:
        self.folder, self.servers, self.entry, self.injected = folder, servers, entry, 0
        self.topic = f"chaos-{next(_topics)}"
        servers.kafka.create_topic(self.topic, PARTITIONS)
        self.assigned = [0] * WORKERS
        self.away: set[int] = set()
        self.store_server: Any = None
        self.forgotten: list[int] = []
        self.items = catalogue(folder / "items", mapped=True)
        self.node_port = free_port()
        self.metrics_ports = [free_port() for _ in range(WORKERS + 1)]
        prefix = f"?prefix={self.topic}" if url.startswith("redis") else ""
        self.url, self.store = url, open_store(url + prefix)
        for number in range(WORKERS + 1):
            far = number == FAR
            log = servers.far_log if far else servers.kafka.servers
            self._configure(self.name(number), log, (far_url if far else url) + prefix, self.metrics_ports[number])
        self._configure(NODE, servers.kafka.servers, url + prefix)
        options = KafkaOptions(servers=servers.kafka.servers)
        partitioners = ["murmur2"] * SENDERS + ["crc32"]
        self.routers: list[Process] = []
        self.sinks = [
            KafkaSink(options, topic=self.topic, delivery_s=120, partitioner=partitioner)
            for partitioner in partitioners
        ]

    @staticmethod
    def name(number: int) -> str:
        return f"worker-{number}"

    def configuration(self, name: str) -> Path:
        """The configuration file of a process."""
        return self.folder / f"{name}.toml"

    def __enter__(self) -> Self:
        self.node = self.start_process(NODE, "omdml.workers.cli", "node")
        self.workers = [self._worker(number) for number in range(WORKERS)]
        *proper, foreign = map(Sender, self.sinks)
        keyless = Sender(self.sinks[0], keyed=False)
        self.load, self.watches = Load(proper, [foreign, keyless], self.models, self.rate, [HOT]), list[Watch]()
        try:
            self.learns()
            wait_for(lambda: all(version_served(self.node_port, model) for model in self.models), "answers", LIMIT_S)
        except BaseException:
            self.__exit__()
            raise
        self.watches = [learning(self.store, self.watched), serving(self.node_port, self.watched)]
        self.learning, self.serving = self.watches
        return self

    def __exit__(self, *_: object) -> None:
        self.servers.start()
        for thread in (self.load, *self.watches):
            thread.end()
        for process in (*self.workers, *self.routers, self.node):
            process.close()
        for sink in self.sinks:
            sink.close()

    def start(self, number: int, *arguments: str, entry: str = "") -> None:
        """Start a worker that has ended; ``arguments`` come before those of the command line."""
        self.workers[number].close()
        self.assigned[number] = self.workers[number].said.count(ASSIGNED)
        self.workers[number] = self._worker(number, *arguments, entry=entry)

    def oracle(self) -> Oracle:
        """What must have become of every event that the log has now."""
        log, (kind, place) = records.read_topic(self.servers.kafka.servers, self.topic), self.url.split(":", 1)
        if kind == "dir":
            placement = records.placement_in_folder(Path(place))
        else:
            with redis.Redis.from_url(self.url) as client:
                placement = records.placement_in_redis(client, self.topic)
        return Oracle(log, Placement.read(placement), drawn(self.store.secret(), GUARD_EVERY), in_parts=[HOT])

    def checkpoints(self) -> list[bytes]:
        """The newest checkpoint of every model, as it lies in the store."""
        kind, place = self.url.split(":", 1)
        if kind == "dir":
            return records.checkpoints_in_folder(Path(place))
        with redis.Redis.from_url(self.url) as client:
            return records.checkpoints_in_redis(client, self.topic)

    def letters(self) -> list[bytes]:
        return [letter.value for letter in records.read_topic(self.servers.kafka.servers, f"{self.topic}.letters")]

    def live(self) -> dict[str, int]:
        """The live version of every model; -1 if there is none."""
        pointers = zip(self.models, self.store.current_all(self.models), strict=True)
        return {model: pointer.version if pointer else -1 for model, pointer in pointers}

    def learns(self) -> None:
        """Return when every worker has partitions since its start, and every model has learned something more."""
        started = list(zip(self.workers, self.assigned, strict=True))
        self.wait(lambda: all(worker.said.count(ASSIGNED) > given for worker, given in started), "workers to join")
        self.all_learn()

    def all_learn(self) -> None:
        """Return when every model has learned something more."""
        before = self.live()
        self.wait(lambda: all(now != before[model] for model, now in self.live().items()), "every model to learn")

    def serves(self, versions: dict[str, int]) -> None:
        """Return when the node answers with these versions, as far as they are watched."""
        versions = {model: versions[model] for model in self.watched}
        wait_for(lambda: self.serving.versions == versions, f"the node to serve {versions}", LIMIT_S, self.node)

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Return when the condition holds; fail with the workers' last lines if it does not, or if one ended."""
        try:
            wait_for(lambda: self._ended() or condition(), what, LIMIT_S)
            assert not self._ended(), f"{self._ended()} ended before {what}"
        except AssertionError as error:
            text = "\n".join(f"{worker.output.name}: {worker.said[-1500:]}" for worker in self.workers)
            raise AssertionError(f"{error}\n{text}") from None

    def _ended(self) -> list[str]:
        workers = [worker for number, worker in enumerate(self.workers) if number not in self.away]
        return [worker.output.stem for worker in workers if not worker.running]

    def said(self, words: str) -> int:
        """How often a text is in the output of the workers."""
        return sum(worker.said.count(words) for worker in self.workers)

    def start_process(self, name: str, entry: str, *arguments: str) -> Process:
        """A process with the configuration of this name."""
        # Other entries change what modules find when they are imported, so they need a new interpreter.
        process = self.process if entry == "omdml.workers.cli" else Process
        return process(self.folder, *arguments, "--config", str(self.configuration(name)), name=name, module=entry)

    def _worker(self, number: int, *arguments: str, entry: str = "") -> Process:
        return self.start_process(self.name(number), entry or self.entry, *arguments, "worker")

    def _configure(self, name: str, log: str, url: str, metrics_port: int | None = None) -> None:
        bind = "" if metrics_port is None else f"127.0.0.1:{metrics_port}"
        models = (
            f'[models."{model}"]\nlearner = "{self.learner[model]}"\nrank = {RANK}\n'
            + 'coordinates = "features"\nparts = true\n' * (model == HOT)
            for model in self.models
        )
        self.configuration(name).write_text(
            f'[log]\nkind = "kafka"\nservers = "{log}"\ntopic = "{self.topic}"\ngroup = "{self.topic}"\n'
            f'member = "{name}"\n[store]\nurl = "{url}"\n[catalogues.items]\npath = "{self.folder}/items"\n'
            f'[worker]\nbind = "{bind}"\n[node]\nbind = "127.0.0.1:{self.node_port}"\n'
            # Clicks are random here, so that the guard must not withhold anything.
            "[guard]\ntolerance = 2.0\ngrowth = 1e9\nmoved = 1.0\n" + "".join(models)
        )
