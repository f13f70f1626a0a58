"""What a catalogue is built from: tables of items, which are read a few rows at a time, and several times."""

from __future__ import annotations

import difflib
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from omdml.errors import CatalogueError

# Rows that are read at a time. Building needs memory for the ids, and for raw and scaled copies of these rows.
CHUNK_ROWS = 4096
# The most bytes of raw numbers of one modality in memory.
CHUNK_BYTES = 64 << 20
# The longest id that an event may name, see omdml.feedback.Id.
ID_LENGTH = 512
# The most numbers of an item in one modality.
MAX_DIM = 1_000_000
# What numpy (which parses Python), zipfile, zlib and pyarrow raise if they cannot read a file.
UNREADABLE = (
    OSError, ValueError, EOFError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError, NotImplementedError,
    RuntimeError, zlib.error, zipfile.BadZipFile,
)  # fmt: skip

# For each modality the columns of its numbers, in this order.
Columns = Mapping[str, Sequence[str]]
_NUMBERED = re.compile(r"(?P<modality>.+)[._](?P<number>\d+)")


class NoVectors(CatalogueError):
    """Raised if a table has no column of vectors."""


class ItemChunk(NamedTuple):
    """Some items: their ids, and raw vectors (n, d) of each modality, of any type of number."""

    ids: Sequence[str]
    vectors: Mapping[str, NDArray[Any]]


class Table(Protocol):
    """A source of items.

    ``name`` is what errors call it. ``count`` is the number of items, None if it is known only after reading.
    ``numbered`` says that the table has no ids, and that row numbers are used instead.
    """

    name: str
    count: int | None
    numbered: bool

    def chunks(self, rows: int) -> Iterator[ItemChunk]:
        """All items in order, at most ``rows`` at a time; the same each time. Raises CatalogueError."""


def chunks_of(table: Table) -> Iterator[ItemChunk]:
    """All items of a table; raises CatalogueError if the file cannot be read."""
    try:
        yield from table.chunks(CHUNK_ROWS)
    except UNREADABLE as error:
        raise CatalogueError(
            f"{table.name}: cannot be read to its end ({error}): restore the file, or write it again"
        ) from error


def cause(error: BaseException) -> object:
    """What to say of an error beside the name of the file, which errors of the operating system repeat."""
    return (isinstance(error, OSError) and error.strerror) or error


def rows_at_once(table: str, rows: int, dims: Mapping[str, int]) -> int:
    """How many rows to read at a time, at most ``rows``; raises CatalogueError if a row has too many numbers."""
    for name, dim in dims.items():
        if dim > MAX_DIM:
            raise CatalogueError(
                f"{table}: modality {name!r} has {dim:,} numbers for each item, expected at most {MAX_DIM:,}"
            )
    return max(1, min(rows, CHUNK_BYTES // (8 * max(dims.values(), default=1) or 1)))


def numbered_columns(table: str, names: Iterable[str]) -> dict[str, list[str]]:
    """Columns grouped by prefix: ``color.0, color.1`` or ``color_0, color_1``; counted from 0 or 1, without gaps.

    Names that do not end in a number are left out. Raises CatalogueError if a number is missing or occurs twice.

    Examples
    --------
    >>> numbered_columns("items.csv", ["id", "color_1", "color_0", "text.1"])
    {'color': ['color_0', 'color_1'], 'text': ['text.1']}
    """
    groups: dict[str, dict[int, str]] = {}
    for name in names:
        if match := _NUMBERED.fullmatch(name):
            group, number = groups.setdefault(match["modality"], {}), int(match["number"])
            if number in group:
                raise CatalogueError(
                    f"{table}: columns {group[number]!r} and {name!r} are the same number of a vector: leave one out"
                )
            group[number] = name
    for modality, group in groups.items():
        first = 0 if 0 in group else 1
        if missing := sorted(set(range(first, first + len(group))) - group.keys()):
            raise CatalogueError(
                f"{table}: modality {modality!r} has {len(group)} columns, but none with number {missing[0]}: number "
                "them without a gap"
            )
    return {modality: [group[number] for number in sorted(group)] for modality, group in groups.items()}


def require_modality(
    table: str, modalities: Iterable[str], expected: str, columns: Iterable[str], others: Sequence[str] = ()
) -> None:
    """Raise NoVectors if a table with these columns has no modality; ``expected`` says what one looks like.

    ``others`` are columns that may hold text, which omdml could describe.
    """
    if not list(modalities):
        advice = ""
        if others:
            advice = f". To have omdml describe the words of a column, name it: --text {others[0]}. "
            advice += "If these are only attributes, name a file with the vectors of the same ids beside this one"
        raise NoVectors(
            f"{table}: no modality: expected {expected}; it has {shown(list(columns)) or 'nothing'}{advice}"
        )


def require_columns(table: str, wanted: Iterable[str], columns: Sequence[str], advice: str = "") -> None:
    """Raise CatalogueError if a wanted column is missing, or occurs twice; ``advice`` is added if it is missing."""
    for name in wanted:
        if columns.count(name) != 1:
            problem = f"{columns.count(name)} columns named {name!r}, expected one; it has {shown(columns)}"
            if name not in columns:
                near = difflib.get_close_matches(name, columns, n=1, cutoff=0.7)
                problem += f": did you mean {near[0]!r}?" if near else advice
            raise CatalogueError(f"{table}: {problem}")


def require_ids(table: str, id_column: str, columns: Sequence[str]) -> None:
    """Raise CatalogueError if a table lacks its column of ids, or has it twice."""
    advice = f": name the column that holds the ids, such as --id-column {columns[0]}" if columns else ""
    require_columns(table, [id_column], columns, advice)


def shown(names: Sequence[str]) -> str:
    """The names of columns for a message: the first 20."""
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
