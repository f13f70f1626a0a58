"""An index in PostgreSQL with pgvector: two tables that take turns, and a view of the one that is live.

====================  ===========================================================================================
``NAME``              the view that readers use: ``id``, ``embedding``, ``attributes``, ``version``
``NAME_a, NAME_b``    the two sides: one is live, the other is the draft
``omdml_sync``        one row an index: which side is live, how often that changed, and what it stands for
====================  ===========================================================================================

Why two tables, and not one that is changed in a single transaction: a transaction cannot be throttled without holding
back VACUUM as long as it lasts, a kill throws all of it away, and readers would search an HNSW graph in which old and
new rows lie side by side. The draft is written in small transactions, each of which a kill leaves behind for good.

Why readers never see two versions at once:

1. The switch replaces the view, which needs a lock on it that no reader shares. It is granted when every transaction
   that used the view has ended. From then on nobody reads the side that was live, so it may be written.
2. The switch does not wait for the lock longer than ``LOCK_WAIT_MS``, because new readers queue up behind it. It tries
   again instead.
3. A transaction at REPEATABLE READ may have begun before the switch and use the view for the first time after it. It
   would see the new live side as it was in the middle of being written. The view compares the number of switches that
   it was made with to the number in ``omdml_sync``, which such a transaction sees as it was: it gets an error.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NoReturn

import msgspec
import numpy as np

from omdml.errors import ConfigurationError
from omdml.streams.addresses import masked
from omdml.streams.indexes.postgresql.format import SESSION, STATE, client, decode_indexed, has_nul, one_line
from omdml.streams.indexes.postgresql.reader import PostgresReader
from omdml.streams.protocols.index import (
    Attributes,
    IndexAway,
    Indexed,
    IndexRefused,
    IndexRows,
    VectorIndex,
    no_rows,
)

# Identifiers of PostgreSQL have 63 bytes at most; ours get up to 7 more.
NAME = re.compile(r"[a-z_][a-z0-9_]{0,55}")
SIDES = ("a", "b")
# pgvector's limit for an index on type vector, and for the type itself.
INDEXED_WIDTH, MOST_WIDTH = 2_000, 16_000
FETCH_ROWS = 5_000
LOCK_WAIT_MS = 250
# How long a sync waits for the one before it to be gone.
OWNED_WAIT_MS = 2000
SWITCH_TRIES, SWITCH_PAUSE_S = 60, 0.5
REFUSAL = "omdml switched this index to another version after this transaction had begun: begin it again"
# What a server answers to a connection that it would refuse again. The errors of failed connections carry no code.
CLOSED_DOOR = ("authentication failed", "does not exist", "pg_hba.conf", "is not permitted to log in")


class PostgresIndex(VectorIndex):
    """An index of one name in the first schema of a connection's search path.

    Parameters
    ----------
    url
        A connection string, ``postgresql://USER@HOST/DATABASE``; what it leaves out, libpq takes from the environment.
    name
        Name of the view, lower case letters, digits and ``_``.
    approximate
        Whether the tables have an HNSW index by Euclidean distance; otherwise every search is an exact scan.

    Raises
    ------
    ConfigurationError
        The name cannot be one, or a package is missing.
    """

    alternating = True

    def __init__(self, url: str, name: str, approximate: bool = True) -> None:
        if not NAME.fullmatch(name):
            raise ConfigurationError(
                f"--name {name!r}: expected at most 56 lower case letters, digits and _, not a digit first"
            )
        self._psycopg, self._register_vector = client()
        self._url, self._name, self._hnsw = url, name, approximate
        self._connection: Any = None

    def __str__(self) -> str:
        return f"{self._name} in {masked(self._url)}"

    def live(self) -> tuple[Indexed, IndexRows] | None:
        """The version that readers see, and its rows; None if there is none."""
        with self._database() as database:
            side, _, indexed = self._state(database)
            # If somebody dropped the view, perhaps with the table under it, readers see nothing. It is made again.
            if side is None or self._width(database, self._name) != indexed.width:
                return None
            return indexed, self._rows(database, side, indexed.width)

    def draft(self, width: int) -> IndexRows:
        """What the draft holds; its table is made if there is none of this width."""
        limit = INDEXED_WIDTH if self._hnsw else MOST_WIDTH
        if width > limit:
            advice = ": use --index none, or a learner with fewer coordinates" if self._hnsw else ""
            raise IndexRefused(f"{self}: items have {width:,} numbers, pgvector takes at most {limit:,}{advice}")
        with self._database() as database:
            table = self._table(self._draft_side(database))
            if self._width(database, table) == width:
                return self._rows(database, table[-1], width)
            with database.transaction():
                database.execute(f"DROP TABLE IF EXISTS {table}")
                database.execute(
                    f"CREATE TABLE {table} (id text PRIMARY KEY, embedding vector({width}) NOT NULL, "
                    "attributes jsonb NOT NULL)"
                )
            return no_rows(width)

    def prepare(self, changes: int, total: int) -> None:
        """Drop the search structure if more than half of the rows change: building it is faster than changing it."""
        if 2 * changes > total:
            with self._database() as database:
                database.execute(f"DROP INDEX IF EXISTS {self._table(self._draft_side(database))}_hnsw")

    def write(self, rows: IndexRows) -> None:
        """Insert or replace rows in the draft."""
        from psycopg.types.json import Jsonb

        for item, attributes in zip(rows.ids, rows.attributes, strict=True):
            if "\0" in item or has_nul(attributes):
                raise IndexRefused(
                    f"{self}: item {item!r}: its id or an attribute has the character U+0000, which PostgreSQL cannot "
                    "hold: remove it there"
                )
        with self._database() as database:
            statement = (
                f"INSERT INTO {self._table(self._draft_side(database))} (id, embedding, attributes) "
                "VALUES (%s, %b, %s) ON CONFLICT (id) "
                "DO UPDATE SET embedding = EXCLUDED.embedding, attributes = EXCLUDED.attributes"
            )
            values = zip(rows.ids, rows.embedding, map(Jsonb, rows.attributes), strict=True)
            with database.transaction():
                database.cursor().executemany(statement, values)

    def remove(self, ids: Sequence[str]) -> None:
        """Take rows out of the draft."""
        with self._database() as database:
            database.execute(f"DELETE FROM {self._table(self._draft_side(database))} WHERE id = ANY(%s)", [list(ids)])

    def switch(self, indexed: Indexed) -> None:
        """Build what is missing of the draft's search structure, and make the draft live."""
        with self._database() as database:
            side = self._draft_side(database)
            table = self._table(side)
            if self._hnsw:
                database.execute(
                    f"CREATE INDEX IF NOT EXISTS {table}_hnsw ON {table} USING hnsw (embedding vector_l2_ops)"
                )
            self._when_unlocked(lambda: self._replace_view(database, side, indexed))

    def keep(self, indexed: Indexed) -> None:
        """Note what the live side stands for; the view reads it there."""
        with self._database() as database:
            database.execute(
                f"UPDATE {STATE} SET indexed = %s WHERE name = %s", [msgspec.json.encode(indexed).decode(), self._name]
            )

    def reader(self) -> PostgresReader:
        return PostgresReader(self._url, self._name)

    def close(self) -> None:
        """Close the connection, and with it the lock."""
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None

    # What the methods above are made of

    @contextmanager
    def _database(self) -> Iterator[Any]:
        """The connection, which is closed after any error; errors are raised as ours."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection
        except self._psycopg.Error as error:
            self.close()
            self._refuse(error)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> Any:
        from psycopg.types.json import set_json_loads

        database = self._psycopg.connect(self._url, autocommit=True, **SESSION)
        try:
            # PostgreSQL keeps decimal digits, and attributes are floats: 1e23 comes back as a whole number, which no
            # float equals. Its item would be written again with each version.
            set_json_loads(partial(json.loads, parse_int=float), database)
            # A statement of a writer that was killed ends soon, and with it the lock.
            database.execute("SET client_connection_check_interval = '2s'")
            self._lock_index(database)
            self._make_extension(database)
            self._register_vector(database)
            with database.transaction():
                database.execute(
                    f"CREATE TABLE IF NOT EXISTS {STATE} (name text PRIMARY KEY, live text, switches bigint NOT NULL, "
                    "indexed jsonb, refusal text NOT NULL)"
                )
                self._register(database)
        except BaseException:
            database.close()
            raise
        return database

    def _lock_index(self, database: Any) -> None:
        """Become the only writer of this index. The lock ends with the connection."""
        if database.execute("SELECT current_schema()").fetchone()[0] is None:
            raise IndexRefused(
                f"{self}: its role may use no schema of its search_path: GRANT USAGE, CREATE ON SCHEMA ... TO its role"
            )
        keys = "hashtext('omdml_sync'), hashtext(current_schema() || '.' || %s)"
        try:
            with database.transaction():
                # The server may notice some time later that the writer before this one closed its connection.
                database.execute(f"SET LOCAL lock_timeout = {OWNED_WAIT_MS}")
                database.execute(f"SELECT pg_advisory_lock({keys})", [self._name])
        except self._psycopg.errors.LockNotAvailable:
            holder = database.execute(
                "SELECT string_agg(pid::text, ', ') FROM pg_locks WHERE locktype = 'advisory' AND granted "
                "AND classid = (hashtext('omdml_sync')::bigint & 4294967295)::oid "
                "AND objid = (hashtext(current_schema() || '.' || %s)::bigint & 4294967295)::oid",
                [self._name],
            ).fetchone()[0]
            raise IndexAway(
                f"{self}: another omdml sync writes it (PostgreSQL's process {holder}): stop it, or use another --name"
            ) from None

    def _make_extension(self, database: Any) -> None:
        if database.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone():
            return
        try:
            database.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except self._psycopg.Error as error:
            raise IndexRefused(
                f"{self}: the extension vector is missing, and cannot be created ({one_line(error)}). Install pgvector "
                "on the server (Debian's package is postgresql-NN-pgvector). Then have a superuser run: "
                "CREATE EXTENSION vector"
            ) from error

    def _register(self, database: Any) -> None:
        """Enter the index; raises IndexRefused if its names are in use for something else."""
        if database.execute(f"SELECT 1 FROM {STATE} WHERE name = %s", [self._name]).fetchone():
            return
        for name in (self._name, *map(self._table, SIDES)):
            if database.execute("SELECT to_regclass(%s)", [name]).fetchone()[0]:
                raise IndexRefused(f"{self}: there is a table or view {name} that omdml did not make: choose a --name")
        database.execute(
            f"INSERT INTO {STATE} (name, switches, refusal) VALUES (%s, 0, %s) ON CONFLICT DO NOTHING",
            [self._name, REFUSAL],
        )

    def _table(self, side: str) -> str:
        return f"{self._name}_{side}"

    def _state(self, database: Any) -> tuple[str | None, int, Any]:
        """The live side, the number of switches, and what the live side stands for."""
        row = database.execute(
            f"SELECT live, switches, indexed::text FROM {STATE} WHERE name = %s", [self._name]
        ).fetchone()
        if row is None:
            raise IndexRefused(f"{self}: its row in {STATE} is gone: drop {self._name} and its tables, and sync again")
        side, switches, text = row
        return side, switches, text and decode_indexed(text, str(self))

    def _draft_side(self, database: Any) -> str:
        live = self._state(database)[0]
        return SIDES[1] if live == SIDES[0] else SIDES[0]

    def _width(self, database: Any, table: str) -> int | None:
        """How many numbers the rows of a table have; None if there is no such table, or view."""
        row = database.execute(
            "SELECT atttypmod FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'embedding'", [table]
        ).fetchone()
        return row and row[0]

    def _rows(self, database: Any, side: str, width: int) -> IndexRows:
        ids: list[str] = []
        attributes: Attributes = []
        chunks = [np.empty((0, width), np.float32)]
        with database.transaction(), database.cursor("omdml_rows", binary=True) as cursor:
            cursor.execute(f"SELECT id, embedding, attributes FROM {self._table(side)}")
            while rows := cursor.fetchmany(FETCH_ROWS):
                ids += [row[0] for row in rows]
                chunks.append(np.stack([row[1].to_numpy() for row in rows]))
                attributes += [row[2] for row in rows]
        return IndexRows(ids, np.concatenate(chunks), attributes)

    def _replace_view(self, database: Any, side: str, indexed: Indexed) -> None:
        switches = self._state(database)[1] + 1
        state_row = f"FROM {STATE} state WHERE state.name = '{self._name}'"
        body = (
            f"SELECT id, embedding, attributes, (SELECT (state.indexed ->> 'version')::bigint {state_row}) AS version "
            f"FROM {self._table(side)} WHERE (SELECT CASE WHEN state.switches = {switches} THEN true "
            # A text that is no truth value: the cast fails, and the error shows it.
            f"ELSE state.refusal::boolean END {state_row})"
        )
        with database.transaction():
            database.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
            width = self._width(database, self._name)
            rights = []
            if width not in (None, indexed.width):
                # A view cannot change the type of a column.
                rights = self._rights(database)
                database.execute(f"DROP VIEW {self._name}")
            database.execute(f"CREATE OR REPLACE VIEW {self._name} AS {body}")
            for grant in rights:
                database.execute(grant)
            database.execute(
                f"UPDATE {STATE} SET live = %s, switches = %s, indexed = %s WHERE name = %s",
                [side, switches, msgspec.json.encode(indexed).decode(), self._name],
            )

    def _rights(self, database: Any) -> list[str]:
        """Statements that grant again who may do what with the view."""
        granted = database.execute(
            "SELECT privilege_type, CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END "
            "FROM pg_class, aclexplode(relacl) WHERE oid = to_regclass(%s) AND grantee <> relowner",
            [self._name],
        ).fetchall()
        return [f"GRANT {right} ON {self._name} TO {role}" for right, role in granted]

    def _when_unlocked(self, change: Callable[[], None]) -> None:
        """Change the view as soon as no transaction uses it."""
        for _ in range(SWITCH_TRIES):
            try:
                return change()
            except self._psycopg.errors.LockNotAvailable:
                time.sleep(SWITCH_PAUSE_S)
        raise IndexAway(
            f"{self}: transactions have used the view for {SWITCH_TRIES * SWITCH_PAUSE_S:.0f} s without a pause, so it "
            "cannot be switched: end those that are left open (pg_stat_activity, idle in transaction)"
        )

    def _refuse(self, error: Any) -> NoReturn:
        """Raise an error of the client as one of ours."""
        errors, text = self._psycopg.errors, one_line(error)
        if isinstance(error, errors.InsufficientPrivilege):
            raise IndexRefused(
                f"{self}: {text}: omdml sync needs to create tables and views there: "
                "GRANT USAGE, CREATE ON SCHEMA ... TO its role"
            ) from error
        if isinstance(error, errors.DependentObjectsStillExist):
            raise IndexRefused(
                f"{self}: {text}: the width of the vectors changes, so the view is made again: drop what depends on it"
            ) from error
        closed = error.sqlstate is None and any(words in text for words in CLOSED_DOOR)
        if isinstance(error, self._psycopg.OperationalError | self._psycopg.InterfaceError) and not closed:
            raise IndexAway(f"{self}: {text}: is PostgreSQL up, and can it be reached from here?") from error
        raise IndexRefused(f"{self}: {text}") from error
