"""Columns of an input table that are not vectors become attributes of the items.

A cell of CSV has no type, so all cells of a column decide together: if all are numbers, the column holds numbers. A
date stays text here; filters compare it as a date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeGuard

import msgspec
import structlog

from omdml.errors import CatalogueError
from omdml.streams.catalogues.changes.change import (
    BUILD_AGAIN,
    MAX_ATTRIBUTES,
    RESERVED,
    Change,
    Value,
    check_attributes,
    checked,
)
from omdml.streams.catalogues.tables.table import Table, require_columns

# A number as JSON writes it. An article number such as 007 stays a text.
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
# Above this a float64 cannot hold every whole number.
EXACT = 2**53
FLAGS = {"true": True, "false": False}

log = structlog.get_logger(__name__)

Row = tuple[str, dict[str, Value]]
_list = msgspec.json.Decoder(list[str])


class TableWithAttributes(Table, Protocol):
    """A table whose other columns can be attributes.

    Attributes
    ----------
    others
        The columns that are neither ids nor vectors and whose type an attribute can have.
    """

    others: Sequence[str]

    def attributes(self, names: Sequence[str]) -> Iterator[Row]:
        """Each item's id and its values of these columns, without empty ones; raises CatalogueError."""


class InputAttributes(NamedTuple):
    """The attributes that some tables bring: for each table, some of its columns."""

    columns: Sequence[tuple[TableWithAttributes, Sequence[str]]]

    @property
    def names(self) -> list[str]:
        """The attributes, in the order of the columns."""
        return [name for _, names in self.columns for name in names]

    @property
    def kinds(self) -> dict[str, CellKind]:
        """What the cells of each column of CSV are, after :meth:`changes` was read."""
        return {name: kind for table, _ in self.columns for name, kind in getattr(table, "kinds", {}).items()}

    def check(self) -> None:
        """Raise CatalogueError if an item cannot have its attributes, before anything is built."""
        for table, names in self.columns:
            for item, attributes in table.attributes(names):
                check_attributes(attributes, f"{table.name}: item {item!r:.80}")

    def changes(self) -> Iterator[Change]:
        """A change of each item: it has these attributes and no others. Raises CatalogueError."""
        for item, attributes in self._rows():
            yield checked(Change(id=item, attributes=attributes), "inputs")

    def _rows(self) -> Iterable[Row]:
        tables = [table.attributes(names) for table, names in self.columns]
        if len(tables) == 1:
            return tables[0]
        joined: dict[str, dict[str, Value]] = {}
        for item, attributes in chain.from_iterable(tables):
            joined.setdefault(item, {}).update(attributes)
        return joined.items()


def attributes_in(
    tables: Sequence[Table], wanted: Sequence[str] | None, described: Sequence[str] = ()
) -> InputAttributes:
    """The columns that become attributes: those ``wanted``; if that is None, all that can and are not ``described``.

    Raises CatalogueError for a column that is missing or in two tables, and for a name that no attribute can have.
    """
    sources = [table for table in tables if has_others(table)]
    if wanted and not sources:
        raise CatalogueError("attributes are columns of CSV or Parquet, but no input is CSV or Parquet: leave them out")
    if wanted is not None:
        require_columns(" and ".join(table.name for table in sources), wanted, [n for s in sources for n in s.others])
    columns = [(table, _chosen(table, wanted, described)) for table in sources]
    inputs = InputAttributes([(table, names) for table, names in columns if names])
    _check_names(inputs.names)
    return inputs


def _chosen(table: TableWithAttributes, wanted: Sequence[str] | None, described: Sequence[str]) -> list[str]:
    """The columns of a table that become attributes. A column that cannot be one is left out if nobody asked for it."""
    if wanted is not None:
        return [name for name in table.others if name in wanted]
    left_out = [name for name in table.others if name in RESERVED]
    if left_out:
        log.info("columns_left_out", table=table.name, columns=left_out, reason="these names have a meaning in filters")
    return [name for name in table.others if name not in RESERVED and name not in described]


def has_others(table: Table) -> TypeGuard[TableWithAttributes]:
    """Whether the columns of a table can be attributes."""
    return hasattr(table, "others")


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if name in RESERVED:
            raise CatalogueError(
                f"column {name!r}: an attribute cannot have this name, because it has a meaning in filters: rename it"
            )
        if names.count(name) > 1:
            raise CatalogueError(f"column {name!r} is in two inputs: leave it out of one of them")
    if len(names) > MAX_ATTRIBUTES:
        raise CatalogueError(
            f"{len(names)} columns are not vectors, but at most {MAX_ATTRIBUTES} can be attributes: choose some "
            "(--attributes price,brand) or none (--attributes none)"
        )


class CellKind:
    """Finds out what all cells of a CSV column are: numbers, true or false, or lists of texts; otherwise texts.

    Attributes
    ----------
    cells, numbers
        How many cells are not empty, and how many of these are numbers.
    first_text
        The item and the cell of the first one that is no number.
    """

    def __init__(self) -> None:
        self._possible: list[Callable[[str], Value]] = [number_in, flag_in, list_in]
        self.cells = self.numbers = 0
        self.first_text: tuple[str, str] | None = None

    def see(self, cell: str, item: str) -> None:
        """Take one more cell into account, that of this item; an empty one says nothing."""
        if not cell:
            return
        self.cells += 1
        if number_in(cell) is not None:
            self.numbers += 1
        elif self.first_text is None:
            self.first_text = item, cell
        if self._possible:
            self._possible = [read for read in self._possible if read(cell) is not None]

    def __str__(self) -> str:
        if not self.cells:
            return "empty"
        return KIND_NAMES[self._possible[0]] if self._possible else "text"

    @property
    def doubt(self) -> str:
        """Why a column that is mostly numbers counts as text; empty if it does not."""
        if self._possible or self.first_text is None or 2 * self.numbers <= self.cells:
            return ""
        item, cell = self.first_text
        return (
            f"{self.numbers:,} of {self.cells:,} cells are numbers, but item {item!r} has {cell!r:.80}, so all of them "
            f"are text. If searches should compare numbers, correct such cells (9.50, not 9,50) and {BUILD_AGAIN}"
        )

    def read(self, cell: str) -> Value:
        """The value of a cell; None if it is empty."""
        if not cell:
            return None
        return self._possible[0](cell) if self._possible else cell


def number_in(cell: str) -> float | int | None:
    """The number in a cell; None if it is not a number, or a whole number that float64 cannot hold exactly."""
    match = NUMBER.fullmatch(cell)
    if match is None:
        return None
    if match[2] or match[3]:
        value = float(cell)
        return value if abs(value) < float("inf") else None
    return int(cell) if len(cell) <= 17 and abs(int(cell)) < EXACT else None


def flag_in(cell: str) -> bool | None:
    """True or False if a cell says so, in any case of letters; otherwise None."""
    return FLAGS.get(cell.lower())


def list_in(cell: str) -> list[str] | None:
    """The texts of a JSON list; None if the cell holds no such list."""
    if not cell.startswith("["):
        return None
    try:
        return _list.decode(cell)
    except msgspec.DecodeError:
        return None


KIND_NAMES: dict[Callable[[str], Value], str] = {
    number_in: "numbers",
    flag_in: "true or false",
    list_in: "lists of texts",
}


def plain(value: Any) -> Value:
    """A value of a Parquet column as an attribute: dates and times become ISO 8601, decimals become numbers."""
    if value is None or isinstance(value, bool | int | float | str):
        # Parquet writes NaN if there is no number.
        return None if value != value else value
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    if isinstance(value, list):
        return [str(text) for text in value if text is not None]
    return float(value)
