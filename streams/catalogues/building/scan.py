"""The first of the two readings that build a catalogue: it checks the items, and fits the scalings to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence

import numpy as np

from omdml.errors import CatalogueError
from omdml.streams.catalogues.building.joined_ids import JoinedIds, check_id
from omdml.streams.catalogues.manifest import MODALITY_NAME, Modality
from omdml.streams.catalogues.scaling import Floats, not_finite, unfitted
from omdml.streams.catalogues.sets import ItemSet, check_sets
from omdml.streams.catalogues.tables.attributes import has_others
from omdml.streams.catalogues.tables.table import ItemChunk, Table, chunks_of

# What to do if an input lacks items, or has ids of no items.
EVERY_MODALITY = (
    "a build needs every modality of every item. Leave other items out, and add them afterwards with `omdml catalogue "
    "put`, which fills in what they lack"
)
ONLY_ATTRIBUTES = (
    "every item needs a row of attributes, whose cells may be empty, and every row an item. Correct the ids, add rows, "
    "or leave rows out"
)
# A function that is called with the number of rows that were just read.
Advance = Callable[[int], None]


class Scan:
    """What was seen of the items so far.

    Parameters
    ----------
    kinds
        Name of the scaling, for all modalities or by modality; modalities not named have ``"minmax"``.
    taken, taken_sets
        Ids of the items and sets that are there already.
    """

    def __init__(
        self,
        kinds: str | Mapping[str, str] = "minmax",
        taken: Container[str] = (),
        taken_sets: Container[str] = (),
    ) -> None:
        self.kinds = kinds
        self.taken, self.taken_sets = taken, taken_sets
        self.sets: list[ItemSet] = []
        self.row_of: dict[str, int] = {}
        # The input that says which items there are; empty until it was read.
        self._first = ""
        # What to do if the ids of one input are not those of another.
        self._advice = ""
        self.modalities: dict[str, Modality] = {}

    def read(self, tables: Sequence[Table], advance: Advance) -> None:
        """Read these tables, which together hold every modality of every item. Each has the ids of all items.

        Raises
        ------
        CatalogueError
            No items, an id twice, one that cannot be an id, one missing in a table; a modality in two tables; vectors
            of another length; a value that is no finite number; a scaling of an unknown name or modality.
        """
        numbered = [table.name for table in tables if table.numbered]
        if numbered and len(numbered) < len(tables):
            self._advice = (
                f". {numbered[0]} has no ids, so its row numbers are the ids: give it an array `ids`, or a text file "
                f"of them (--ids)"
            )
        for table in tables:
            self._read(table, advance)
        if not isinstance(self.kinds, str) and (unknown := sorted(self.kinds.keys() - self.modalities.keys())):
            known = ", ".join(sorted(self.modalities))
            raise CatalogueError(f"scaling names modality {unknown[0]!r}, the inputs have {known}")

    def read_like(self, dims: Mapping[str, int], tables: Sequence[Table], advance: Advance) -> None:
        """Read tables that must have a catalogue's modalities; raises CatalogueError also if they have others."""
        self.read(tables, advance)
        input_dims = {name: modality.dim for name, modality in self.modalities.items()}
        if input_dims != dims:
            raise CatalogueError(
                f"the inputs have modalities {input_dims}, the catalogue there has {dict(dims)}: bring exactly these"
            )

    def take(self, sets: list[ItemSet]) -> None:
        """Take in sets of these items, and of those there already; raises CatalogueError if they do not fit."""
        check_sets(sets, self, self.taken_sets)
        self.sets = sets

    def __contains__(self, item: object) -> bool:
        """Whether an item of this id was read, or is there already."""
        return item in self.row_of or item in self.taken

    def _read(self, table: Table, advance: Advance) -> None:
        before, ids = set(self.modalities), JoinedIds(table, self.row_of if self._first else None)
        for chunk in chunks_of(table):
            for item in chunk.ids:
                if ids.see(item):
                    self._take_id(table, item)
            for name in chunk.vectors:
                if name in before:
                    raise CatalogueError(
                        f"{table.name}: modality {name!r} is in another input already: leave it out of one of them"
                    )
                self._fit(name, raw_vectors(table, chunk, name))
            advance(len(chunk.ids))
        if not ids.rows:
            raise CatalogueError(f"{table.name}: the input has no items: add some, or leave it out")
        without_vectors = set(self.modalities) == before
        if without_vectors and not has_others(table):
            raise CatalogueError(f"{table.name}: no modality: bring at least one array (n, d) of vectors")
        ids.check(self._first, (ONLY_ATTRIBUTES if without_vectors else EVERY_MODALITY) + self._advice)
        self._first = self._first or table.name

    def _take_id(self, table: Table, item: str) -> None:
        """Take in an id that this table has not had before; raises CatalogueError if no item can have it."""
        if item in self.taken:
            raise CatalogueError(
                f"{table.name}: item {item!r} is in the catalogue already: leave it out, or change it with "
                f"`omdml catalogue put`"
            )
        if item in self.taken_sets:
            raise CatalogueError(f"{table.name}: item {item!r} is named like a set of the catalogue: rename it")
        if not self._first:
            check_id(table.name, item)
            self.row_of[item] = len(self.row_of)

    def _fit(self, name: str, vectors: Floats) -> None:
        dim = vectors.shape[1]
        modality = self.modalities.get(name) or self._begin(name, dim)
        if modality.dim != dim:
            raise CatalogueError(
                f"modality {name!r}: vectors of {modality.dim} and of {dim} numbers, expected one length"
            )
        self.modalities[name] = Modality(dim, modality.scaling.fitted(vectors))

    def _begin(self, name: str, dim: int) -> Modality:
        if not re.match(MODALITY_NAME, name):
            raise CatalogueError(f"modality {name!r}: expected letters, digits and _ . - in its name, 100 at most")
        kind = self.kinds if isinstance(self.kinds, str) else self.kinds.get(name, "minmax")
        return Modality(dim, unfitted(kind, dim))


def raw_vectors(table: Table, chunk: ItemChunk, name: str) -> Floats:
    """The vectors (n, d) of a modality; CatalogueError if they are no matrix of finite numbers."""
    array = chunk.vectors[name]
    if array.dtype.kind not in "buif" or array.ndim != 2 or array.shape[1] == 0:
        raise CatalogueError(f"{table.name}: modality {name!r} is {array.dtype} {array.shape}, expected numbers (n, d)")
    vectors = np.ascontiguousarray(array, np.float64)
    if place := not_finite(vectors):
        raise CatalogueError(
            f"{table.name}: item {chunk.ids[place[0]]!r}, modality {name!r}, column {place[1]} is {vectors[place]}, "
            f"expected a finite number"
        )
    return vectors
