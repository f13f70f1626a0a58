"""What is soaked: 200 models on two workers and three nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from omdml import DEFAULT_LEARNER
from tests.fault.asking import version_served
from tests.fault.chaos.service import HOT, LIMIT_S, NODE, Service
from tests.support.processes import Process, free_port, wait_for

MODELS = [f"shop-{number}" for number in range(200)]
MORE_NODES = ("node-2", "node-3")
HELD = "tests.fault.soak.held"


class Soaked(Service):
    """The service of the fault run with more models and nodes.

    Attributes
    ----------
    more_nodes
        The nodes beside the one that searches go to, and ``more_ports``, where they listen.
    """

    models: ClassVar = [*MODELS, HOT]
    learner: ClassVar = {model: (DEFAULT_LEARNER, "lomdml")[number % 2] for number, model in enumerate(models)}
    # Two cores serve all of this, and whatever else the machine does.
    rate = 100
    # With this many models each is looked at too rarely to say how long it stood still.
    watched: ClassVar = [*MODELS[:4], HOT]

    def __init__(self, folder: Path, *arguments: Any) -> None:
        super().__init__(folder, *arguments)
        self.more_nodes: list[Process] = []
        self.more_ports = [free_port() for _ in MORE_NODES]
        mine = self.configuration(NODE).read_text()
        for name, port in zip(MORE_NODES, self.more_ports, strict=True):
            self.configuration(name).write_text(mine.replace(f":{self.node_port}", f":{port}"))

    def __enter__(self) -> Soaked:
        self.more_nodes = [self.start_process(name, "omdml.workers.cli", "node") for name in MORE_NODES]
        super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for node in self.more_nodes:
            node.close()

    def start_process(self, name: str, entry: str, *arguments: str) -> Process:
        """The same process, which also reports what it holds."""
        return super().start_process(name, HELD if entry == "omdml.workers.cli" else entry, *arguments)

    @property
    def pids(self) -> dict[str, int]:
        """The processes by their names; a worker that was killed and started again has another id."""
        workers = {f"worker {number}": worker.pid for number, worker in enumerate(self.workers, start=1)}
        nodes = {f"node {number}": node.pid for number, node in enumerate((self.node, *self.more_nodes), start=1)}
        return workers | nodes

    def every_node_serves_all(self) -> None:
        """Return when all nodes answer with the live version of every model; fail if one does not."""
        live = self.live()
        for port in (self.node_port, *self.more_ports):
            for model, version in live.items():
                wait_for(
                    lambda port=port, model=model, version=version: version_served(port, model) == version,
                    f"the node at port {port} to serve version {version} of {model}",
                    LIMIT_S,
                )
