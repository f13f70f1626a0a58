"""Reads an index in PostgreSQL for a node that takes candidates from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.streams.addresses import masked
from omdml.streams.indexes.postgresql.conditions import sql_of
from omdml.streams.indexes.postgresql.format import SESSION, STATE, client, decode_indexed, one_line
from omdml.streams.protocols.index import Condition, IndexAway, Indexed, IndexMoved, IndexReader, IndexRefused

# A search must not wait longer for an answer.
READ_MS = 5_000
# pgvector's limit for how many candidates a search of an HNSW index keeps.
MOST_KEPT = 1_000
# The first version of pgvector whose searches can go on until enough rows match.
ITERATIVE = (0, 8)


class PostgresReader(IndexReader):
    """Reads the view, and what it stands for in the same transaction: neither changes in between.

    The database role needs ``SELECT`` on the view and on ``omdml_sync``.
    """

    def __init__(self, url: str, name: str) -> None:
        self._psycopg, self._register_vector = client()
        self._url, self._name = url, name
        self._connection: Any = None
        # How many candidates a search of this connection keeps, and whether it goes on until there are enough.
        self._kept, self._iterative = 0, False

    def __str__(self) -> str:
        return f"{self._name} in {masked(self._url)}"

    def live(self) -> Indexed | None:
        """What the view stands for; None if there is no view."""
        with self._database() as database:
            if None in database.execute("SELECT to_regclass(%s), to_regclass(%s)", [STATE, self._name]).fetchone():
                return None
            return self._indexed(database)

    def places(self, indexed: Indexed, ids: Sequence[str]) -> tuple[Sequence[str], NDArray[np.float32]]:
        """The ids among these that the index has, and their vectors (n, width)."""
        with self._database() as database:
            rows = self._select(database, indexed, "id, embedding", "WHERE id = ANY(%s)", [list(ids)])
            vectors = [row[1].to_numpy() for row in rows]
            return [row[0] for row in rows], np.array(vectors, np.float32).reshape(-1, indexed.width)

    def nearest(self, indexed: Indexed, point: NDArray[np.float32], count: int) -> Sequence[str]:
        """The nearest by pgvector. Before 0.8 it finds at most 1,000 in an HNSW index."""
        return self._nearest(indexed, point, count, "", [])

    def nearest_among(
        self, indexed: Indexed, point: NDArray[np.float32], count: int, condition: Condition
    ) -> Sequence[str] | None:
        """The nearest by pgvector with a ``WHERE``; None before 0.8, which applies it only after the search."""
        with self._database():
            if not self._iterative or (sql := sql_of(condition)) is None:
                return None
        return self._nearest(indexed, point, count, f"WHERE {sql[0]} ", sql[1])

    def _nearest(
        self, indexed: Indexed, point: NDArray[np.float32], count: int, where: str, values: list[str]
    ) -> Sequence[str]:
        with self._database() as database:
            if self._kept != (candidates := min(count, MOST_KEPT)):
                database.execute(f"SET hnsw.ef_search = {candidates}")
                self._kept = candidates
            clauses = f"{where}ORDER BY embedding <-> %b LIMIT %s"
            return [row[0] for row in self._select(database, indexed, "id", clauses, [*values, point, count])]

    def close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None

    def _select(self, database: Any, indexed: Indexed, columns: str, clauses: str, values: list[Any]) -> list[Any]:
        """Rows of the view, if it stands for ``indexed`` while they are read; raises IndexMoved.

        The view cannot be switched from the first statement of a transaction that uses it until that transaction ends.
        """
        try:
            with database.transaction():
                rows: list[Any] = database.execute(f"SELECT {columns} FROM {self._name} {clauses}", values).fetchall()
                current = self._indexed(database)
        except (self._psycopg.errors.UndefinedTable, self._psycopg.errors.DataException) as error:
            # The view is gone, or its vectors have another width.
            raise IndexMoved(f"{self}: {one_line(error)}") from error
        if current != indexed:
            raise IndexMoved(f"{self}: readers see another version now")
        return rows

    def _indexed(self, database: Any) -> Indexed | None:
        row = database.execute(f"SELECT indexed::text FROM {STATE} WHERE name = %s", [self._name]).fetchone()
        return decode_indexed(row[0], str(self)) if row and row[0] else None

    def _set_iterative(self, database: Any) -> bool:
        """Have searches of an HNSW index go on until enough rows match, if pgvector can do that."""
        version = database.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
        if version is None or tuple(map(int, version[0].split(".")[:2])) < ITERATIVE:
            return False
        database.execute("SET hnsw.iterative_scan = relaxed_order")
        return True

    @contextmanager
    def _database(self) -> Iterator[Any]:
        """The connection, which is closed after any error of the database's."""
        try:
            if self._connection is None:
                self._connection = self._psycopg.connect(
                    self._url, autocommit=True, **{**SESSION, "application_name": "omdml node"}
                )
                self._kept = 0
                self._connection.execute(f"SET statement_timeout = {READ_MS}")
                self._iterative = self._set_iterative(self._connection)
                # A database that was never synced to may lack the type: then nobody asks for vectors.
                with suppress(self._psycopg.ProgrammingError):
                    self._register_vector(self._connection)
            yield self._connection
        except self._psycopg.OperationalError as error:
            self.close()
            raise IndexAway(f"{self}: {one_line(error)}: is PostgreSQL up, and can it be reached from here?") from error
        except self._psycopg.Error as error:
            self.close()
            grants = f"GRANT SELECT ON {self._name}, {STATE} TO its role"
            raise IndexRefused(f"{self}: {one_line(error)}: a node needs to read the view: {grants}") from error
