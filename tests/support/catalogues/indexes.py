"""Syncs into real vector databases, and reads from them."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from typing import NamedTuple

import numpy as np
import psycopg
from pgvector.psycopg import register_vector
from prometheus_client import CollectorRegistry

from omdml import LOMDML
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.indexes.lancedb.writer import LanceIndex
from omdml.streams.indexes.postgresql.writer import PostgresIndex
from omdml.workers.operate.export.source import LiveItems
from omdml.workers.operate.sync.metrics import SyncMetrics, SyncState
from omdml.workers.operate.sync.syncing import Syncer
from omdml.workers.operate.sync.throttle import Throttle
from tests.support.catalogues.exports import error
from tests.support.forks import ForkedProcess
from tests.support.pages.documents import blocks
from tests.support.processes import ROOT, wait_for
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
        with self.watched() as read:
            return read()

    @contextmanager
    def watched(self):
        """Yields a function that reads the whole index; all its calls share one connection."""
        with self.reader() as database:
            yield lambda: seen(database.execute(f"SELECT id, embedding, attributes, version FROM {NAME}").fetchall())

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


def seen(rows) -> Seen:
    """An answer of PostgreSQL's: id, vector, attributes and version of each row."""
    (version,) = {row[3] for row in rows}
    return Seen(version, {row[0]: row[1].to_numpy() for row in rows}, {row[0]: row[2] for row in rows})


class Lance:
    """A folder of LanceDB's as an index, and a reader of it that uses no code of omdml."""

    def __init__(self, folder) -> None:
        self.folder, self.address = folder, f"lancedb:{folder}"

    def open(self) -> LanceIndex:
        return LanceIndex(self.folder, NAME)

    def read(self) -> Seen:
        with self.watched() as read:
            return read()

    @contextmanager
    def watched(self):
        """Yields a function that reads the whole index; all its calls share one connection and table."""
        table = self.table()

        def read():
            table.checkout("live")
            content = table.search().to_arrow()
            notes = json.loads(table.schema.field("id").metadata[b"omdml"])
            ids, attributes = content["id"].to_pylist(), map(json.loads, content["attributes"].to_pylist())
            matrix = np.array(content["embedding"].to_pylist(), np.float32)
            vectors = dict(zip(ids, matrix, strict=True))
            return Seen(notes["indexed"]["version"], vectors, dict(zip(ids, attributes, strict=True)))

        yield read

    def table(self):
        """The table at its newest version: the draft."""
        # The import takes three seconds of processor time: only processes that run such a test spend them.
        import lancedb

        return lancedb.connect(self.folder).open_table(NAME)


class Sqlite:
    """The example of deploy/VECTORS.md as an index, and a reader of it."""

    def __init__(self, path) -> None:
        self.path, self.address = path, f"sqlite:{path}"

    def open(self):
        return SqliteIndex(self.address, NAME, True)

    def read(self) -> Seen:
        with self.watched() as read:
            return read()

    @contextmanager
    def watched(self):
        """Yields a function that reads the whole index; all its calls share one connection."""
        with closing(sqlite3.connect(self.path, timeout=60)) as database:

            def read():
                rows = database.execute(f"SELECT id, embedding, attributes, version FROM {NAME}").fetchall()
                (version,) = {row[3] for row in rows}
                vectors = {row[0]: np.frombuffer(row[1], np.float32) for row in rows}
                return Seen(version, vectors, {row[0]: json.loads(row[2]) for row in rows})

            yield read


def shown_index():
    """The class of an index that deploy/VECTORS.md shows to its readers."""
    text = (ROOT / "deploy" / "VECTORS.md").read_text()
    (block,) = [block for block in blocks(text, "python") if "(VectorIndex)" in block.text]
    names: dict = {"__name__": "shown"}
    exec(compile(block.text, "deploy/VECTORS.md", "exec"), names)
    return names["SqliteIndex"]


SqliteIndex = shown_index()


class Watcher(threading.Thread):
    """Reads a whole index again and again."""

    def __init__(self, database) -> None:
        super().__init__()
        self.answers, self.failed, self.ended = [], None, threading.Event()
        self._database = database

    def run(self):
        try:
            with self._database.watched() as read:
                # A reader that never rests would leave the writer no time on a small machine.
                rest_s = 0.0
                while not self.ended.wait(rest_s):
                    begin = time.monotonic()
                    self.answers.append(read())
                    rest_s = max(0.02, 3 * (time.monotonic() - begin))
        except BaseException as error:
            self.failed = error

    def sees(self, version):
        """Whether the last answer was of this version; fails if reading failed."""
        assert self.failed is None, self.failed
        return bool(self.answers) and self.answers[-1].version == version

    def end(self):
        """Stop reading; fails if reading failed."""
        self.ended.set()
        self.join()
        assert self.failed is None, self.failed


def of_one_version(shop, answers):
    """Whether each answer has all items, within the bound of their vectors under the version that it names."""
    different = {(answer.version, bytes_of(answer)): answer for answer in answers}
    return all(
        len(answer.vectors) == ITEMS and error(shop, answer.vectors, answer.version) <= 0.1
        for answer in different.values()
    )


def bytes_of(answer):
    """The vectors of an answer, in the order of their ids."""
    return b"".join(vector.tobytes() for _, vector in sorted(answer.vectors.items()))


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


def read_while_versions_come(reader, shop, database):
    """Let a reader read beside a writer that brings eight versions, each of which it must come to see."""
    with Sync(shop, database.open()) as sync:
        sync.step()
        reader.start()
        for _ in range(8):
            shop.learn(10)
            version = shop.publish()
            sync.step()
            wait_for(lambda version=version: reader.sees(version), "the reader to see the version")
        reader.end()


def start_sync(folder, database, *arguments, name="sync"):
    """``omdml sync`` as a process of its own; its log is NAME.log in the folder."""
    environment = {"OMDML_SYNC_TO": database.address}
    return ForkedProcess(folder, "sync", "shop", "--moved", "0.05", *arguments, name=name, environment=environment)
