"""Checks the ids of a table that is joined with others by its ids: they must be those of the others."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from omdml.errors import CatalogueError, quoted
from omdml.streams.catalogues.tables.table import ID_LENGTH, Table, chunks_of

HEADER = " (a header is not counted)"


class JoinedIds:
    """Finds out, row by row, what is wrong with the ids of a table. All of it is counted before it is reported.

    Parameters
    ----------
    table
        The table.
    expected
        The ids of the table that was read before this one; None if there is none.
    """

    def __init__(self, table: Table, expected: Collection[str] | None) -> None:
        self._table, self._expected = table, expected
        self._seen: set[str] = set()
        self.rows = 0
        self._empty, self._repeated, self._unknown = _Counted(), _Counted(), _Counted()

    def see(self, item: str) -> bool:
        """Take the id of one more row into account; returns whether nothing is wrong with it."""
        self.rows += 1
        if not item:
            self._empty.add(self.rows, item)
        elif item in self._seen:
            self._repeated.add(self.rows, item)
        elif self._expected is not None and item not in self._expected:
            self._unknown.add(self.rows, item)
        else:
            self._seen.add(item)
            return True
        return False

    def check(self, before: str, advice: str, *, needs_all: bool = True) -> None:
        """Raise CatalogueError, which counts what is wrong, if anything is.

        ``before`` is the name of the table before this one. ``advice`` says what to do if the ids of the two differ.
        The table may lack some of the expected ids unless it ``needs_all``.
        """
        name = self._table.name
        if empty := self._empty:
            raise CatalogueError(
                f"{name}: {_share(empty.count, self.rows, 'row')} no id, the first is row {empty.row:,}{HEADER}: give "
                "each an id, or leave it out"
            )
        if repeated := self._repeated:
            more = f", and {repeated.count - 1:,} more of {self.rows:,} rows repeat an id" if repeated.count > 1 else ""
            raise CatalogueError(
                f"{name}: id {repeated.item!r} is there twice, in rows {self._first_row(repeated.item):,} and "
                f"{repeated.row:,}{HEADER}{more}: leave all but one row of each id out"
            )
        problems = []
        if unknown := self._unknown:
            share = _share(unknown.count, self.rows, "row")
            problems.append(f"{share} an id that is missing in {before}, the first is {unknown.item!r}")
        expected = (self._expected or ()) if needs_all else ()
        if missing := [item for item in expected if item not in self._seen]:
            share = _share(len(missing), len(expected), "item")
            problems.append(f"{share} no row, the first is {missing[0]!r}")
        if problems:
            raise CatalogueError(f"{name}: {'; '.join(problems)}: {advice}")

    def _first_row(self, item: str) -> int:
        ids = chain.from_iterable(chunk.ids for chunk in chunks_of(self._table))
        return next(row for row, other in enumerate(ids, start=1) if other == item)


def check_id(table: str, item: object) -> None:
    """Raise CatalogueError if no item can have this id."""
    if wrong := wrong_id(item):
        raise CatalogueError(f"{table}: id {quoted(item)} {wrong}")


def wrong_id(item: object) -> str:
    """Why no item can have this id; empty if one can."""
    if not isinstance(item, str):
        return f"is no text, expected text of 1 to {ID_LENGTH} characters: write it as a text"
    if not 1 <= len(item) <= ID_LENGTH:
        return f"has {len(item):,} characters, expected 1 to {ID_LENGTH}: choose another id"
    if "\n" in item or "\r" in item:
        return "holds a line break, and each id is kept on a line of its own: leave it out"
    if "\0" in item:
        return "holds a NUL, which databases do not take: leave it out"
    try:
        item.encode()
    except UnicodeEncodeError as error:
        return f"cannot be written as UTF-8 ({error.reason}): correct it"
    return ""


class _Counted:
    """Rows of one kind: how many there are, and the first of them."""

    def __init__(self) -> None:
        self.count = self.row = 0
        self.item = ""

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, row: int, item: str) -> None:
        """Count one more row, which has this id."""
        if not self.count:
            self.row, self.item = row, item
        self.count += 1


def _share(count: int, total: int, what: str) -> str:
    """How many of all, with the verb, such as ``1 of 3 rows has``."""
    return f"{count:,} of {total:,} {what}{'s' * (total != 1)} {'has' if count == 1 else 'have'}"
