"""Reads an index in LanceDB for a node that takes candidates from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.streams.indexes.lancedb.conditions import sql_of
from omdml.streams.indexes.lancedb.format import LIVE, client, one_line, quoted, read_notes
from omdml.streams.protocols.index import Condition, IndexAway, Indexed, IndexMoved, IndexReader

# Bytes of each cache of a reader.
CACHE_BYTES = 16_000_000
# What LanceDB says if a value in JSON is a list, and a filter compares its text.
NO_TEXT = "Failed to convert to string"


class LanceReader(IndexReader):
    """Reads the live version of a table, which it checks out before each look.

    Every look opens the table again, so that one that was removed and synced again is found. LanceDB's cache of
    vectors is kept small, or this process would hold the whole index after some searches.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._database: Any = None
        self._library, _ = client()

    def __str__(self) -> str:
        return f"{self._name} in {self._folder}"

    def live(self) -> Indexed | None:
        """What the tag ``live`` stands for; None if there is no tag yet."""
        with self._live() as (_, indexed):
            return indexed

    def places(self, indexed: Indexed, ids: Sequence[str]) -> tuple[Sequence[str], NDArray[np.float32]]:
        """The ids among these that the index has, and their vectors (n, width)."""
        with self._live(indexed) as (table, _):
            rows = (
                table.search()
                .where(f"id IN ({', '.join(map(quoted, ids))})")
                .select(["id", "embedding"])
                .limit(len(ids))
                .to_arrow()
                .combine_chunks()
            )
            embedding = rows["embedding"].combine_chunks().flatten().to_numpy().reshape(-1, indexed.width)
            return rows["id"].to_pylist(), embedding

    def nearest(self, indexed: Indexed, point: NDArray[np.float32], count: int) -> Sequence[str]:
        """The nearest by LanceDB's own search, of whole vectors."""
        return self._nearest(indexed, point, count, None)

    def nearest_among(
        self, indexed: Indexed, point: NDArray[np.float32], count: int, condition: Condition
    ) -> Sequence[str] | None:
        """The nearest by the same search with a ``WHERE``, which LanceDB applies first.

        None if LanceDB cannot express the condition, or if the condition compares an attribute that holds lists.
        """
        where = sql_of(condition)
        if where is None:
            return None
        try:
            return self._nearest(indexed, point, count, where)
        except IndexAway as error:
            # The index still has lists under this attribute, which became a text or a number after the last sync.
            if NO_TEXT in str(error):
                return None
            raise

    def _nearest(self, indexed: Indexed, point: NDArray[np.float32], count: int, where: str | None) -> Sequence[str]:
        with self._live(indexed) as (table, _):
            search = table.search(point, vector_column_name="embedding").distance_type("l2")
            if where is not None:
                search = search.where(where)
            rows = search.select(["id", "_distance"]).limit(count).to_arrow()
            return [str(item) for item in rows["id"].to_pylist()]

    @contextmanager
    def _live(self, expected: Indexed | None = None) -> Iterator[tuple[Any, Indexed | None]]:
        """The table at its tag, and what it stands for; raises IndexMoved if that is not what is ``expected``."""
        if not (self._folder / f"{self._name}.lance").exists():
            if expected is not None:
                raise IndexMoved(f"{self}: there is no table any more")
            yield None, None
            return
        try:
            if self._database is None:
                caches = self._library.Session(
                    index_cache_size_bytes=CACHE_BYTES, metadata_cache_size_bytes=CACHE_BYTES
                )
                self._database = self._library.connect(self._folder, session=caches)
            table = self._database.open_table(self._name)
            indexed = None
            if LIVE in table.tags.list():
                table.checkout(LIVE)
                indexed = read_notes(table).indexed
            if expected is not None and indexed != expected:
                raise IndexMoved(f"{self}: readers see another version now")
            yield table, indexed
        except (OSError, RuntimeError, ValueError) as error:
            raise IndexAway(
                f"{self}: {one_line(error)}: see that this user can read the files in {self._folder}"
            ) from error
