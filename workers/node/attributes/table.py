"""The attributes of a catalogue's items, from a file of JSON lines."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError
from omdml.streams.protocols import Catalogue
from omdml.streams.regular import opened
from omdml.workers.configuration.config import suggestion
from omdml.workers.node.attributes.columns import Column, Flags, Lists, Mask, Numbers, Texts
from omdml.workers.node.attributes.filters import WORDS, Filter, shown
from omdml.workers.node.live_model import SearchError

ID = "id"
MAX_LINE_BYTES = 1 << 20
MAX_ATTRIBUTES = 256
# Catalogues, as large as views need them, and masks of each.
KEPT_CATALOGUES, KEPT_MASKS = 8, 64
KINDS = {bool: "true or false", float: "a number", str: "a text", list: "a list of texts"}
COLUMNS: dict[type, type[Any]] = {bool: Flags, float: Numbers, str: Texts, list: Lists}

Value = None | bool | int | float | str | list[str]
_line = msgspec.json.Decoder(dict[str, Value])


class Attributes:
    """Attributes by item id. Any number of threads may use it.

    Parameters
    ----------
    lines
        ``{"id": "17", "price": 9.5, "brand": "acme", "tags": ["red"], "sale": true}`` each; what is missing, or null,
        has no value.
    where
        What errors call them.

    Raises
    ------
    CatalogueError
        What is wrong, in which line.
    """

    def __init__(self, lines: Iterable[bytes], where: str) -> None:
        self._rows: dict[str, int] = {}
        values: dict[str, tuple[type, list[int], list[Any]]] = {}
        for number, line in enumerate(lines, start=1):
            if line.strip():
                self._read(line, f"{where}, line {number}", values)
        # One row more: that of items that the file does not name.
        self.count = len(self._rows) + 1
        self.columns: dict[str, Column] = {
            name: COLUMNS[kind](self.count, rows, found) for name, (kind, rows, found) in values.items()
        }
        self._aligned: list[Aligned] = []
        self._aligning = threading.Lock()

    def _read(self, line: bytes, where: str, values: dict[str, tuple[type, list[int], list[Any]]]) -> None:
        if len(line) > MAX_LINE_BYTES:
            raise CatalogueError(f"{where}: {len(line):,} bytes, expected at most {MAX_LINE_BYTES:,}")
        try:
            told = _line.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CatalogueError(
                f"{where}: {error}; expected a JSON object of texts, numbers, true, false and lists of texts"
            ) from error
        item = told.pop(ID, None)
        if not isinstance(item, str) or item in self._rows:
            wrong = f"item {item!r} a second time" if isinstance(item, str) else f"{ID} is {item!r}, expected a text"
            raise CatalogueError(f"{where}: {wrong}")
        row = self._rows[item] = len(self._rows)
        for name, value in told.items():
            if value is None:
                continue
            given: Value = value
            if type(value) is int:
                try:
                    given = float(value)
                except OverflowError:
                    raise CatalogueError(f"{where}: {name} is larger than numbers go: write it as a text") from None
            kind, rows, found = values.setdefault(name, (type(given), [], []))
            if kind is not type(given):
                raise CatalogueError(f"{where}: {name} is {value!r}, expected {KINDS[kind]}, as in earlier lines")
            if name in WORDS or not name:
                raise CatalogueError(f"{where}: an attribute cannot be called {name!r}, which filters use: rename it")
            if len(values) > MAX_ATTRIBUTES:
                raise CatalogueError(
                    f"{where}: more than {MAX_ATTRIBUTES} attributes: leave out what nobody filters by"
                )
            rows.append(row)
            found.append(given)

    def mask(self, asked: Any, catalogue: Catalogue, count: int) -> Mask:
        """Which of a catalogue's first items match a filter (count,); raises SearchError."""
        return self._align(catalogue, count).mask(asked)

    def of(self, items: Iterable[str], names: Iterable[str]) -> list[dict[str, Any]]:
        """The values of each item, as far as it has them; raises SearchError for an unknown attribute."""
        names = dict.fromkeys(names)
        for name in names:
            if name not in self.columns:
                there = ", ".join(self.columns) or "none"
                message = f"fields: no attribute {shown(name)}{suggestion(name, self.columns)}; there are: {there}"
                raise SearchError(message, "unknown_field")
        rows = [self._rows.get(item, self.count - 1) for item in items]
        return [{name: value for name in names if (value := self.columns[name].value(row)) is not None} for row in rows]

    def _align(self, catalogue: Catalogue, count: int) -> Aligned:
        with self._aligning:
            for one in self._aligned:
                if one.catalogue() is catalogue and len(one.rows) == count:
                    return one
            missing = self.count - 1
            rows = np.array([self._rows.get(item, missing) for item in catalogue.ids[:count]], np.int64)
            made = Aligned(self.columns, self.count, catalogue, rows)
            self._aligned = [*self._aligned[1 - KEPT_CATALOGUES :], made]
            return made


class Aligned:
    """Filters over the items of a catalogue, in its order; the newest masks are kept."""

    def __init__(
        self, columns: Mapping[str, Column], count: int, catalogue: Catalogue, rows: NDArray[np.int64]
    ) -> None:
        # It may have been replaced meanwhile: nobody keeps it for a filter.
        self.catalogue, self.rows = weakref.ref(catalogue), rows
        self._columns, self._count = columns, count
        self._masks: dict[bytes, Mask] = {}
        self._keeping = threading.Lock()

    def mask(self, asked: Any) -> Mask:
        """Which items match (n,); nobody may write to it. Raises SearchError."""
        key = msgspec.json.encode(asked)
        found = self._masks.get(key)
        if found is None:
            found = Filter(self._columns, self._count).mask(asked)[self.rows]
            with self._keeping:
                while len(self._masks) >= KEPT_MASKS:
                    del self._masks[next(iter(self._masks))]
                self._masks[key] = found
        return found


def read_attributes(path: str) -> Attributes:
    """The attributes in a file; raises CatalogueError."""
    try:
        with opened(path) as file:
            return Attributes(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), path)
    except OSError as error:
        raise CatalogueError(f"{path}: attributes cannot be read ({error.strerror}): check the path") from error
