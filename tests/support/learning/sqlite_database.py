"""A database in one SQLite file: an example of a database for stores, and a second one for the contract suites."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omdml.errors import StoreError
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
    """A database in a file, with a connection for each thread."""

    kind, durable = "SQLite file", True

    def __init__(self, path: Path) -> None:
        self.path, self._thread = path, threading.local()

    def __str__(self) -> str:
        return f"sqlite:{self.path}"

    @contextmanager
    def transaction(self, write: bool) -> Iterator[Rows]:
        try:
            with self._connection() as connection:
                # A transaction that reads first and then writes fails if another one wrote in between.
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield SqliteRows(connection)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"store {self}: {error}: check that it can be written and its disk is not full") from error

    def run(self) -> str:
        # A copy that was brought back is another file, so its inode differs.
        return str(self.path.stat().st_ino)

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._thread, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self.path, timeout=PATIENCE_S, isolation_level=None)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(TABLE)
            self._thread.connection = connection
        return connection
