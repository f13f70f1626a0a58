"""The attributes of a catalogue's items, from a file of JSON lines."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError, quoted
from omdml.messages.decoding import undecodable
from omdml.messages.suggestion import suggestion
from omdml.streams.bounded_files import opened
from omdml.streams.catalogues.changes.change import KINDS, MAX_ATTRIBUTES, Value, kind_of
from omdml.streams.protocols.catalogue import Catalogue
from omdml.workers.node.attributes.columns import Column, Dates, Flags, Lists, Mask, Numbers, Texts, texts_or_dates
from omdml.workers.node.attributes.filters import WORDS, Filter
from omdml.workers.node.searching.options import SearchError

ID = "id"
MAX_LINE_BYTES = 1 << 20
# How many catalogues the table is aligned with (each with as many rows as a view needs), and how many masks of each
# are kept.
KEPT_CATALOGUES, KEPT_MASKS = 8, 64
COLUMNS: dict[type, Any] = {bool: Flags, float: Numbers, str: texts_or_dates, list: Lists}

Columns = Mapping[str, Column]
NONE: Columns = {}
# Kind, rows and values of each attribute.
Values = dict[str, tuple[type, list[int], list[Any]]]
_line = msgspec.json.Decoder(dict[str, Value])


class Attributes:
    """Attributes by item id. Any number of threads may use it.

    Parameters
    ----------
    lines
        ``{"id": "17", "price": 9.5, "brand": "acme", "tags": ["red"], "sale": true}`` each; what is missing, or null,
        has no value.
    where
        The name of the source in error messages.

    Raises
    ------
    CatalogueError
        What is wrong, in which line.
    """

    def __init__(self, lines: Iterable[bytes], where: str) -> None:
        self._rows: dict[str, int] = {}
        values: Values = {}
        for number, line in enumerate(lines, start=1):
            if line.strip():
                self._read(line, f"{where}, line {number}", values)
        self._finish(values)

    @classmethod
    def of_items(cls, items: Iterable[tuple[str, Mapping[str, Value]]]) -> Attributes:
        """The attributes of these items, each once; a value of another kind than the attribute's first is left out."""
        table = cls((), "")
        values: Values = {}
        for row, (item, attributes) in enumerate(items):
            table._rows[item] = row
            for name, value in attributes.items():
                kind, rows, column = values.setdefault(name, (kind_of(value), [], []))
                if kind is kind_of(value):
                    rows.append(row)
                    column.append(value)
        table._finish(values)
        return table

    @property
    def ids(self) -> Sequence[str]:
        """The items, in the order of their rows."""
        return list(self._rows)

    def has(self, item: str) -> bool:
        """Whether the file, or a change, names this item."""
        return item in self._rows

    def _finish(self, values: Values) -> None:
        # One more row stands for all items that the file does not name.
        self.count = len(self._rows) + 1
        self.columns: dict[str, Column] = {
            name: COLUMNS[kind](self.count, rows, column) for name, (kind, rows, column) in values.items()
        }
        self._aligned: list[Aligned] = []
        self._aligning = threading.Lock()

    def _read(self, line: bytes, where: str, values: Values) -> None:
        if len(line) > MAX_LINE_BYTES:
            raise CatalogueError(f"{where}: {len(line):,} bytes, expected at most {MAX_LINE_BYTES:,}")
        try:
            attributes = _line.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            expected = "expected a JSON object of texts, numbers, true, false and lists of texts"
            raise CatalogueError(f"{undecodable(error, line, where)}; {expected}") from error
        item = attributes.pop(ID, None)
        if not isinstance(item, str) or item in self._rows:
            mistake = f"item {item!r} a second time" if isinstance(item, str) else f"{ID} is {item!r}, expected a text"
            raise CatalogueError(f"{where}: {mistake}")
        row = self._rows[item] = len(self._rows)
        for name, value in attributes.items():
            if value is None:
                continue
            stored: Value = value
            if type(value) is int:
                try:
                    stored = float(value)
                except OverflowError:
                    raise CatalogueError(
                        f"{where}: attribute {name!r} is a number that is too large: write it as a text"
                    ) from None
            kind, rows, column = values.setdefault(name, (type(stored), [], []))
            if kind is not type(stored):
                raise CatalogueError(f"{where}: {name} is {value!r}, expected {KINDS[kind]}, as in earlier lines")
            if name in WORDS or not name:
                raise CatalogueError(f"{where}: an attribute cannot be called {name!r}, which filters use: rename it")
            if len(values) > MAX_ATTRIBUTES:
                raise CatalogueError(
                    f"{where}: more than {MAX_ATTRIBUTES} attributes: leave out what nobody filters by"
                )
            rows.append(row)
            column.append(stored)

    def mask(self, asked: Any, catalogue: Catalogue, count: int, others: Columns = NONE) -> Mask:
        """Which of a catalogue's first items match a filter (count,), which may name attributes of ``others`` too.

        Raises SearchError.
        """
        return self._align(catalogue, count).mask(asked, others)

    def covers(self, catalogue: Catalogue, count: int) -> Mask:
        """Which of a catalogue's first items :meth:`has` is true of (count,)."""
        there: Mask = self._align(catalogue, count).rows < self.count - 1
        return there

    def own_mask(self, asked: Any, others: Columns = NONE) -> Mask:
        """Which of these items match a filter, in the order of their rows; raises SearchError."""
        return Filter(with_empty(self.columns, others, self.count), self.count).mask(asked)[:-1]

    def of(self, items: Iterable[str], names: Iterable[str], others: Columns = NONE) -> list[dict[str, Any]]:
        """The values of each item, as far as it has them; raises SearchError for an unknown attribute."""
        names = dict.fromkeys(names)
        columns = {**self.columns, **others}
        for name in names:
            if name not in columns:
                message = f"fields: no attribute {quoted(name)}{suggestion(name, columns)}"
                raise SearchError(message, "unknown_field")
        own_names = [name for name in names if name in self.columns]
        rows = [self._rows.get(item, self.count - 1) for item in items]
        return [
            {name: value for name in own_names if (value := self.columns[name].value(row)) is not None} for row in rows
        ]

    def _align(self, catalogue: Catalogue, count: int) -> Aligned:
        with self._aligning:
            for aligned in self._aligned:
                if aligned.catalogue() is catalogue and len(aligned.rows) == count:
                    return aligned
            missing = self.count - 1
            shorter = [
                aligned.rows
                for aligned in self._aligned
                if aligned.catalogue() is catalogue and len(aligned.rows) < count
            ]
            longest = max(shorter, key=len, default=np.empty(0, np.int64))
            more = [self._rows.get(item, missing) for item in catalogue.ids[len(longest) : count]]
            rows = np.concatenate([longest, np.array(more, np.int64)])
            aligned_now = Aligned(self.columns, self.count, catalogue, rows)
            self._aligned = [*self._aligned[1 - KEPT_CATALOGUES :], aligned_now]
            return aligned_now


class Aligned:
    """Filters over the items of a catalogue, in its order; the newest masks are kept."""

    def __init__(
        self, columns: Mapping[str, Column], count: int, catalogue: Catalogue, rows: NDArray[np.int64]
    ) -> None:
        # The reference is weak, so that a catalogue that was replaced does not stay in memory for its filters.
        self.catalogue, self.rows = weakref.ref(catalogue), rows
        self._columns, self._count = columns, count
        self._masks: dict[bytes, Mask] = {}
        self._keeping = threading.Lock()

    def mask(self, asked: Any, others: Columns = NONE) -> Mask:
        """Which items match (n,); nobody may write to it. Raises SearchError."""
        columns = with_empty(self._columns, others, self._count)
        key = msgspec.json.encode([asked, sorted((name, type(column).__name__) for name, column in columns.items())])
        mask = self._masks.get(key)
        if mask is None:
            mask = Filter(columns, self._count).mask(asked)[self.rows]
            with self._keeping:
                while len(self._masks) >= KEPT_MASKS:
                    del self._masks[next(iter(self._masks))]
                self._masks[key] = mask
        return mask


def with_empty(columns: Columns, others: Columns, count: int) -> Columns:
    """These columns, and one without values for each that only ``others`` have.

    If ``others`` has texts under the name of a column of dates, these dates are compared as texts, too. So a filter
    means the same for all items.
    """
    kinds: dict[str, Any] = {name: type(column) for name, column in others.items() if name not in columns}
    more: dict[str, Any] = {name: kind(count, (), ()) for name, kind in kinds.items()}
    here: dict[str, Any] = dict(columns)
    for name, column in here.items():
        if isinstance(column, Dates) and isinstance(others.get(name), Texts):
            more[name] = column.as_texts
    return {**columns, **more} if more else columns


def read_attributes(path: str) -> Attributes:
    """The attributes in a file; raises CatalogueError."""
    try:
        with opened(path) as file:
            return Attributes(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), path)
    except OSError as error:
        raise CatalogueError(f"{path}: attributes cannot be read ({error.strerror}): check the path") from error
