"""A database in one SQLite file: an example of a database for stores, and a second one for the contract suites."""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from omdml.errors import StoreError
from omdml.streams.disk import sync, take_lock
from omdml.streams.stores.transactional.database import Database, Rows

TABLE = 'CREATE TABLE IF NOT EXISTS "rows" ("group" TEXT, "name" TEXT, "value" BLOB, PRIMARY KEY ("group", "name"))'
# How long a transaction waits for another one to end.
PATIENCE_S = 5.0


class SqliteRows:
    """The rows of one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def get(self, group: str, name: str) -> bytes | None:
        select = 'SELECT "value" FROM "rows" WHERE "group" = ? AND "name" = ?'
        row = self._connection.execute(select, (group, name)).fetchone()
        return row[0] if row else None

    def put(self, group: str, name: str, value: bytes) -> None:
        self._connection.execute('INSERT OR REPLACE INTO "rows" VALUES (?, ?, ?)', (group, name, value))

    def delete(self, group: str, name: str) -> None:
        self._connection.execute('DELETE FROM "rows" WHERE "group" = ? AND "name" = ?', (group, name))

    def names(self, group: str) -> list[str]:
        return [name for (name,) in self._connection.execute('SELECT "name" FROM "rows" WHERE "group" = ?', (group,))]


class SqliteDatabase(Database):
    """A database in a file, with a connection for each thread.

    Beside it lies a file with the run. Every process that has the database open shares the lock of this file. One that
    is alone begins a new run, because a copy may have been brought back: SQLite allows that only while no process has
    the database open.
    """

    kind, durable = "SQLite file", True

    def __init__(self, path: Path) -> None:
        self.path, self._thread = path, threading.local()
        self._run_path = path.with_name(f"{path.name}-run")
        self._opening, self._opened = threading.Lock(), False

    def __str__(self) -> str:
        return f"sqlite:{self.path}"

    @contextmanager
    def transaction(self, write: bool) -> Iterator[Rows]:
        try:
            if not (write or self._opened) and self._is_missing():
                # A look creates no file, so it sees an empty database.
                with closing(sqlite3.connect(":memory:")) as connection:
                    connection.execute(TABLE)
                    yield SqliteRows(connection)
                return
            with self._connection() as connection:
                # A transaction that reads first and then writes fails if another one wrote in between.
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield SqliteRows(connection)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"store {self}: {error}: check that it can be written and its disk is not full") from error

    def run(self) -> str:
        return self._run_path.read_text()

    def _is_missing(self) -> bool:
        try:
            self.path.stat()
        except FileNotFoundError:
            return True
        return False

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._thread, "connection", None)
        if connection is None:
            with self._opening:
                connection = self._open()
            self._thread.connection = connection
        return connection

    def _open(self) -> sqlite3.Connection:
        if not self._opened:
            # Nobody else may read the secret. SQLite gives its other files the rights of this one. If a process closed
            # a database that it has open, SQLite would lose its locks: so this opens only a new file.
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                sync(self.path.parent)
        # With this mode it is an error if the file has disappeared: a new one would be taken for the store.
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, timeout=PATIENCE_S, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(TABLE)
        if not self._opened:
            self._share_run()
            self._opened = True
        return connection

    def _share_run(self) -> None:
        descriptor = os.open(self._run_path, os.O_RDWR | os.O_CREAT, 0o600)
        weakref.finalize(self, os.close, descriptor)
        if take_lock(descriptor):
            os.pwrite(descriptor, secrets.token_hex(16).encode(), 0)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
