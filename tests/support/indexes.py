"""Syncs into real vector databases, and reads from them."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
import psycopg
from pgvector.psycopg import register_vector
from prometheus_client import CollectorRegistry

from omdml import LOMDML
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.indexes.postgresql import PostgresIndex
from omdml.workers.operate.export.source import LiveItems
from omdml.workers.operate.sync.metrics import SyncMetrics, SyncState
from omdml.workers.operate.sync.syncing import Syncer
from omdml.workers.operate.sync.throttle import Throttle
from tests.support.worlds import ITEMS

NAME = "omdml_shop"


class Seen(NamedTuple):
    """What a reader sees: the version, vectors and attributes by id."""

    version: int
    vectors: dict[str, np.ndarray]
    attributes: dict[str, dict]


class Postgres:
    """An index in a PostgreSQL database, and a reader of it."""

    def __init__(self, url) -> None:
        self.address = url

    def open(self) -> PostgresIndex:
        return PostgresIndex(self.address, NAME)

    def read(self) -> Seen:
        with self.reader() as database:
            rows = database.execute(f"SELECT id, embedding, attributes, version FROM {NAME}").fetchall()
        (version,) = {row[3] for row in rows}
        return Seen(version, {row[0]: row[1].to_numpy() for row in rows}, {row[0]: row[2] for row in rows})

    def reader(self):
        database = psycopg.connect(self.address, autocommit=True)
        register_vector(database)
        return database

    def execute(self, statement, *values):
        """Execute a statement; returns its rows, or None."""
        with psycopg.connect(self.address, autocommit=True) as database:
            cursor = database.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else None

    def written(self):
        """For each side, the transaction that last wrote each row."""
        return {side: dict(self.execute(f"SELECT id, xmin::text FROM {NAME}_{side}")) for side in "ab"}


def widen(shop, folder, width=20) -> None:
    """Give a shop a catalogue and a learner of that many coordinates a modality."""
    draw = np.random.default_rng(0)
    features = {name: draw.normal(size=(ITEMS, width)).astype(np.float32) for name in shop.catalogue.dims}
    shop.catalogue = build_catalogue(folder, features, ids=[f"i{row}" for row in range(ITEMS)])
    version = shop.learner.version
    shop.learner = LOMDML(dims=dict(shop.catalogue.dims), rank=12)
    shop.learner.start(shop.catalogue.features)
    shop.learn(version + 1)


class Sync:
    """A syncer of a shop into an index, with its metrics."""

    def __init__(self, shop, index, table=None, moved=0.05, rows_per_second=None, model="shop") -> None:
        self.stop, registry = threading.Event(), CollectorRegistry()
        self.registry, self.index, self.state = registry, index, SyncState(self.stop)
        source = LiveItems(shop.store, lambda: shop.catalogue, lambda: table, model)
        throttle = Throttle(rows_per_second, self.stop)
        self.syncer = Syncer(index, source, moved, throttle, SyncMetrics(registry), self.state)

    def step(self):
        return self.syncer.step()

    def count(self, name, **labels):
        return self.registry.get_sample_value(f"omdml_sync_{name}", labels)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.index.close()
