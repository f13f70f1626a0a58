"""An index in LanceDB: a table in a folder, whose tag ``live`` says which of its versions readers see.

==================  =============================================================================================
``NAME``            the table: ``id``, ``embedding``, ``attributes``
the tag ``live``    the version of the table that readers check out
its newest version  the draft
==================  =============================================================================================

LanceDB makes a new version of a table with every write, and never changes an old one. So one table is enough, and a
row that moved is written once. What the live version stands for lies in the metadata of its column ``id``: it is a part
of that version, and changes with the tag, in one step.

1. The draft is written in batches, each a version. A kill leaves the versions before it. Readers look at none of them.
2. The search structure is brought up to the draft, and what the version stands for is written beside it. A kill leaves
   a draft that lacks nothing.
3. All files are brought to the disk, and the tag is replaced by renaming a file: the switch.
4. Versions that nobody has been told to read for ``KEPT_S`` are removed. A reader that still holds one gets an error,
   and not other rows. A kill leaves them to the next switch.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import structlog

from omdml.errors import ConfigurationError
from omdml.streams.disk import sync, take_lock
from omdml.streams.indexes.lancedb.format import LIVE, NOTES, Notes, PastVersion, client, one_line, quoted, read_notes
from omdml.streams.indexes.lancedb.reader import LanceReader
from omdml.streams.protocols.index import (
    Attributes,
    IndexAway,
    Indexed,
    IndexRefused,
    IndexRows,
    VectorIndex,
    no_rows,
)

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
# LanceDB names an index after its column.
SEARCHED = "embedding_idx"
# With fewer rows, LanceDB's own scan is as fast.
LEAST_ROWS = 20_000
# How long readers can stay at a version that is no longer live.
KEPT_S = 300.0
# An age that no version has: optimizing then removes none. LanceDB's default of 7 days fails if a tag is older.
NEVER = timedelta(days=36_500)
log = structlog.get_logger(__name__)


class LanceIndex(VectorIndex):
    """An index of one name in a folder of LanceDB's.

    Parameters
    ----------
    folder
        Where LanceDB keeps its tables; made if its parent is there.
    name
        Name of the table.
    approximate
        Whether searches look into the nearest cells of an inverted file; otherwise every search is an exact scan.

    Raises
    ------
    ConfigurationError
        The name cannot be one, or a package is missing.
    """

    def __init__(self, folder: str | Path, name: str, approximate: bool = True) -> None:
        if not NAME.fullmatch(name):
            raise ConfigurationError(
                f"--name {name!r}: expected at most 100 letters, digits and _.-, a letter, digit or _ first"
            )
        self._lancedb, self._arrow = client()
        self._folder, self._name, self._approximate = Path(folder), name, approximate
        self._database: Any = None
        self._table: Any = None
        self._lock: int | None = None
        # Ids in the draft, as long as it holds only what this process wrote into an empty one.
        self._filled: set[str] | None = None
        self._durable: set[Path] = set()

    def __str__(self) -> str:
        return f"{self._name} in {self._folder}"

    def live(self) -> tuple[Indexed, IndexRows] | None:
        """What readers see, and its rows; None if readers see nothing yet."""
        with self._opened() as table:
            if table is None or self._live_version(table) is None:
                return None
            live = self._database.open_table(self._name)
            live.checkout(LIVE)
            indexed = read_notes(live).indexed
            if indexed is None:
                raise IndexRefused(f"{self}: its tag {LIVE!r} is at a version that omdml did not make: remove the tag")
            return indexed, self._rows(live, indexed.width)

    def draft(self, width: int) -> IndexRows:
        """The newest version of the table; an empty one is made if it has another width."""
        with self._opened() as table:
            if table is None or table.schema.field("embedding").type.list_size != width:
                notes = Notes() if table is None else read_notes(table)
                schema = self._schema(width, notes)
                mode = "create" if table is None else "overwrite"
                self._table = self._database.create_table(self._name, schema=schema, mode=mode)
                rows = no_rows(width)
            else:
                rows = self._rows(table, width)
            self._filled = None if len(rows.ids) else set()
            return rows

    def prepare(self, changes: int, total: int) -> None:
        """Drop the search structure if more than half of the rows change: the switch builds it again."""
        with self._opened() as table:
            if 2 * changes > total:
                self._drop_searched(table)

    def write(self, rows: IndexRows) -> None:
        """Put rows into the draft: one version."""
        with self._opened() as table:
            content = self._content(rows, table.schema)
            if self._filled is not None and self._filled.isdisjoint(rows.ids):
                table.add(content)
                self._filled.update(rows.ids)
            else:
                table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(content)

    def remove(self, ids: Sequence[str]) -> None:
        """Take rows out of the draft: one version."""
        with self._opened() as table:
            table.delete(f"id IN ({', '.join(map(quoted, ids))})")
            self._filled = None

    def switch(self, indexed: Indexed) -> None:
        """Bring the search structure up to the draft, and the tag to it."""
        with self._opened() as table:
            notes = read_notes(table)
            changed = notes.changed + self._unsearched(table)
            if not self._approximate or 2 * changed > indexed.items:
                self._drop_searched(table)
            table.optimize(cleanup_older_than=NEVER)
            if self._approximate and indexed.items >= LEAST_ROWS and not self._is_searched(table):
                cells = self._lancedb.index.IvfFlat(distance_type="l2")
                table.create_index("embedding", config=cells, name=SEARCHED)
                changed = 0
            self._make_live(table, indexed, changed)

    def keep(self, indexed: Indexed) -> None:
        """Note what the live version stands for: a version of the same rows. An unfinished draft is given up."""
        with self._opened() as table:
            if table.version != self._live_version(table):
                table.restore(LIVE)
            self._make_live(table, indexed, read_notes(table).changed)

    def reader(self) -> LanceReader:
        """A reader of the tag ``live``."""
        return LanceReader(self._folder, self._name)

    def close(self) -> None:
        """Give the lock back, so that another process may write."""
        self._database = self._table = self._filled = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # What the methods above are made of

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """The table at its newest version, None if there is none; everything is closed after any error."""
        try:
            if self._database is None:
                self._lock_index()
                self._database = self._lancedb.connect(self._folder)
                self._open()
            yield self._table
        except BaseException as error:
            self.close()
            # LanceDB raises these three for whatever is wrong.
            if isinstance(error, OSError | RuntimeError | ValueError):
                self._refuse(error)
            raise

    def _lock_index(self) -> None:
        """Become the only writer of this index. The lock ends with the process."""
        self._folder.mkdir(exist_ok=True)
        self._lock = os.open(self._folder / f".{self._name}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        if not take_lock(self._lock):
            raise IndexAway(f"{self}: another omdml sync writes it: stop it, or use another --name")

    def _open(self) -> None:
        # LanceDB says that there is no such table with a ValueError, as it says much else.
        if not (self._folder / f"{self._name}.lance").exists():
            return
        self._table = self._database.open_table(self._name)
        names = self._table.schema.names
        if "id" not in names or NOTES.encode() not in (self._table.schema.field("id").metadata or {}):
            raise IndexRefused(f"{self}: there is a table {self._name} that omdml did not make: choose a --name")

    def _live_version(self, table: Any) -> int | None:
        tag = table.tags.list().get(LIVE)
        return tag and tag["version"]

    def _schema(self, width: int, notes: Notes) -> Any:
        arrow = self._arrow
        return arrow.schema(
            [
                arrow.field("id", arrow.string(), nullable=False, metadata={NOTES: msgspec.json.encode(notes)}),
                arrow.field("embedding", arrow.list_(arrow.float32(), width), nullable=False),
                arrow.field("attributes", arrow.json_(), nullable=False),
            ]
        )

    def _content(self, rows: IndexRows, schema: Any) -> Any:
        arrow = self._arrow
        width = schema.field("embedding").type.list_size
        numbers = arrow.array(np.ascontiguousarray(rows.embedding, np.float32).reshape(-1))
        texts = arrow.array([json.dumps(attributes) for attributes in rows.attributes], arrow.string())
        columns = [
            arrow.array(list(rows.ids), arrow.string()),
            arrow.FixedSizeListArray.from_arrays(numbers, width),
            arrow.ExtensionArray.from_storage(arrow.json_(), texts),
        ]
        return arrow.table(columns, schema=self._schema(width, Notes()))

    def _rows(self, table: Any, width: int) -> IndexRows:
        ids: list[str] = []
        attributes: Attributes = []
        chunks = [np.empty((0, width), np.float32)]
        for batch in table.search().select(["id", "embedding", "attributes"]).to_batches():
            ids += batch["id"].to_pylist()
            chunks.append(batch["embedding"].flatten().to_numpy().reshape(-1, width))
            attributes += [json.loads(text) for text in batch["attributes"].to_pylist()]
        return IndexRows(ids, np.concatenate(chunks), attributes)

    def _is_searched(self, table: Any) -> bool:
        return any(index.name == SEARCHED for index in table.list_indices())

    def _drop_searched(self, table: Any) -> None:
        if self._is_searched(table):
            table.drop_index(SEARCHED)

    def _unsearched(self, table: Any) -> int:
        """Rows that came since the search structure was last brought up to the table."""
        return table.index_stats(SEARCHED).num_unindexed_rows if self._is_searched(table) else 0

    def _make_live(self, table: Any, indexed: Indexed, changed: int) -> None:
        """Steps 2 to 4 of the switch, with the search structure as it should be."""
        now, version = time.time(), self._live_version(table)
        past: tuple[PastVersion, ...] = ()
        if version is not None:
            live = self._database.open_table(self._name)
            live.checkout(LIVE)
            before = read_notes(live)
            past = (
                *(earlier for earlier in before.past if earlier.until > now - KEPT_S),
                PastVersion(before.made_at, now),
            )
        notes = Notes(indexed=indexed, made_at=now, changed=changed, past=past)
        table.update_field_metadata({"path": "id", "metadata": {NOTES: msgspec.json.encode(notes).decode()}})
        self._to_disk()
        if version is None:
            table.tags.create(LIVE, table.version)
        else:
            table.tags.update(LIVE, table.version)
        self._to_disk()
        self._filled = None
        self._prune(table, time.time() - min([now, *(earlier.made_at for earlier in past)]) + 1)

    def _prune(self, table: Any, older_than_s: float) -> None:
        try:
            table.optimize(cleanup_older_than=timedelta(seconds=older_than_s))
        except RuntimeError as error:
            if "tagged version" not in str(error):
                raise
            log.warning(
                "index_not_pruned", index=str(self), reason=one_line(error), action="old versions stay on the disk",
                hint=f"remove tags of the table other than {LIVE!r}",
            )  # fmt: skip

    def _to_disk(self) -> None:
        """Wait until all files are on the disk, which LanceDB does not. It replaces only tags and a hint."""
        root = self._folder / f"{self._name}.lance"
        files = {path for path in root.rglob("*") if path.is_file()}
        tags = root / "_refs" / "tags" / f"{LIVE}.json"
        for path in files - self._durable | files & {tags}:
            sync(path)
        for folder in {self._folder, root, *(path.parent for path in files - self._durable), tags.parent}:
            if folder.exists():
                sync(folder)
        self._durable = files

    def _refuse(self, error: OSError | RuntimeError | ValueError) -> NoReturn:
        """Raise an error of LanceDB's or the system's as one of ours."""
        if isinstance(error, PermissionError | NotADirectoryError | FileNotFoundError | FileExistsError):
            raise IndexRefused(
                f"{self}: {one_line(error)}: expected a folder that this user may write, or a parent to make it in"
            ) from error
        if isinstance(error, ValueError):
            raise IndexRefused(f"{self}: {one_line(error)}") from error
        raise IndexAway(
            f"{self}: {one_line(error)}: is the disk full, or did somebody else change the table? If this stays, "
            f"remove {self._folder / self._name}.lance and sync again"
        ) from error
