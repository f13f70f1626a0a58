"""A catalogue, a learner that publishes, and nodes that serve it, for tests of the node."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import httpx
import numpy as np

from omdml import LOMDML
from omdml.metrics import ProjectionMetric
from omdml.snapshot import Snapshot
from omdml.streams.memory_log import MemoryLog, MemorySink
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.configuration.access import Access
from omdml.workers.configuration.specs import Specs
from omdml.workers.node.catalogues import CurrentModels
from omdml.workers.node.http.app import create_app
from omdml.workers.node.http.server import HttpServer
from omdml.workers.node.node import RetrievalNode
from tests.support.waiting import wait_until_ready
from tests.support.worlds import ITEMS, catalogue, configuration, triplets


class Store(MemoryStore):
    """A store that can fail: every call raises ``failing`` if it is set."""

    failing: Exception | None = None

    def current(self, model):
        if self.failing:
            raise self.failing
        return super().current(model)


class Shop:
    """The items of :mod:`tests.support.worlds`, a store, and a learner whose every version can be published.

    ``items`` makes the catalogue in a folder.
    """

    def __init__(self, folder, model: str = "shop", store=None, items=catalogue) -> None:
        self.model, self.catalogue, self.store = model, items(folder / "items"), store or Store()
        self.current = CurrentModels(Specs(configuration(folder / "items"), {"items": self.catalogue}))
        self.log = MemoryLog()
        # By version.
        self.metrics: dict[int, ProjectionMetric] = {}
        self.begin_again()

    def begin_again(self) -> None:
        """Forget what was learned, as for a model that is new or was deleted."""
        self.learner = LOMDML(dims=dict(self.catalogue.dims), rank=3)
        self.learner.start(self.catalogue.features)
        self.epoch = self.store.claim(self.model).epoch

    def learn(self, count: int = 20) -> None:
        """Learn ``count`` more comparisons, other ones each time."""
        self.learner.learn_many(triplets(count, seed=self.learner.version), self.catalogue.features)

    def snapshot(self, **changes) -> Snapshot:
        """A snapshot of what was learned so far."""
        fields = {
            "model": self.model,
            "learner": "lomdml",
            "version": self.learner.version,
            "generation": self.catalogue.generation,
            "event_time": None,
            "oldest_event_time": None,
            "progress": {},
            "metric": self.learner.metric,
        }
        return Snapshot(**{**fields, **changes})

    def publish(self, **changes) -> int:
        """Publish what was learned so far; returns its version."""
        snapshot = self.snapshot(**changes)
        self.metrics[snapshot.version] = snapshot.metric
        self.store.publish(snapshot, self.epoch)
        return snapshot.version

    def damage(self, snapshot: Snapshot) -> None:
        """Flip a byte of a published snapshot."""
        journal, key = self.store.journal(self.model), (snapshot.version, snapshot.digest)
        data = bytearray(journal.read(key))
        data[-1] ^= 1
        journal.write(key, bytes(data))

    def node(self, models=("shop",), **options) -> RetrievalNode:
        """A node that is not started; it looks at the store often."""
        options = {"poll_interval_s": 0.02, "sink": MemorySink(self.log), "check": self.current.check, **options}
        catalogues = options.pop("catalogues", lambda model: self.catalogue)
        return RetrievalNode(self.store, catalogues, models, **options)

    @contextmanager
    def serving(self, **options):
        """A node that has a version live."""
        self.publish()
        with self.node(**options) as node:
            wait_until_ready(node)
            yield node

    def expected(self, version: int, item: str, k: int) -> tuple[list[str], np.ndarray]:
        """The answer of a version by brute force in float64."""
        embedding = self.metrics[version].embed(self.catalogue.features).astype(np.float64)
        row = int(self.catalogue.rows([item])[0])
        distances = ((embedding - embedding[row]) ** 2).sum(axis=1)
        distances[row] = np.inf
        order = np.argsort(distances, kind="stable")[: min(k, ITEMS - 1)]
        return [self.catalogue.ids[i] for i in order], distances[order]


@contextmanager
def listening(
    node, token="", hosts=(), port=0, pictures=lambda model: None, tokens=None, office=None, experiments=None, **access
):
    """Serve a node over HTTP on a real server."""
    app = create_app(node, Access(token, tokens, **access), hosts, pictures, office, experiments)
    server = HttpServer(app, port=port)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def client_of(server, **options):
    """A client over plain HTTP: reading this system's certificates would take longer than most requests.

    It is patient: five seconds, its default, may pass before an answer on a busy machine.
    """
    return httpx.Client(base_url=server.url, verify=False, **{"timeout": 60.0, **options})


@contextmanager
def asking(node):
    """A client of a real server."""
    with listening(node) as server, client_of(server) as client:
        yield client


def sent(shop):
    """The events in the shop's feedback log."""
    (partition,) = shop.log.partitions
    return [record.value for record in shop.log.read(partition, 0, 100_000)]


def refused(response, status, error):
    """Check the status and code of a refusal; returns its message."""
    assert (response.status_code, response.json()["error"]) == (status, error), response.text
    return response.json()["message"]


class Thinned:
    """A catalogue that no longer finds some of its items."""

    def __init__(self, catalogue, gone) -> None:
        self._catalogue, self._gone = catalogue, gone

    def __getattr__(self, name):
        return getattr(self._catalogue, name)

    def rows(self, ids):
        result = self._catalogue.rows(ids)
        result[[name in self._gone for name in ids]] = -1
        return result
