"""Sets of items: from a file or a mapping, kept as JSON lines beside the ids."""

from __future__ import annotations

import csv
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from omdml.errors import CatalogueError
from omdml.feedback import Id
from omdml.messages.decoding import misfit, undecodable
from omdml.streams.bounded_files import LINE_CHARACTERS, read_regular, text_lines
from omdml.streams.catalogues.tables.table import require_columns

# The most bytes of a file of sets.
SETS_BYTES = 1 << 30
JSON_LINES = (".jsonl", ".ndjson")
# The columns of a CSV of sets.
SET, ITEM = "set", "item"


class ItemSet(msgspec.Struct, frozen=True):
    """A set and its items: ``{"set": "photo-5", "items": ["face-1", "face-2"]}``."""

    set: Id
    items: Annotated[tuple[Id, ...], Meta(min_length=1)]


# The ids of the items of each set, by the set's id.
Sets = Mapping[str, Sequence[str]]
_decoder = msgspec.json.Decoder(ItemSet)
_encoder = msgspec.json.Encoder()


def open_sets(sets: str | Path | Sets | None) -> list[ItemSet]:
    """Sets from a mapping, from a CSV with columns ``set`` and ``item``, or from JSON lines of :class:`ItemSet`.

    Raises CatalogueError if the file cannot be read, a set has no elements, or an id cannot be one.
    """
    if sets is None:
        return []
    if isinstance(sets, Mapping):
        return [_converted("sets", name, items) for name, items in sets.items()]
    path = Path(sets)
    try:
        if path.suffix.lower() == ".csv":
            return [_converted(str(path), name, items) for name, items in _read_csv(path).items()]
        if path.suffix.lower() in JSON_LINES:
            return decode_sets(read_regular(path, SETS_BYTES), str(path))
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path}: cannot be read as {path.suffix} ({error})") from error
    raise CatalogueError(f"{path}: unknown kind {path.suffix!r} of sets, expected .csv or {', '.join(JSON_LINES)}")


def check_sets(sets: Iterable[ItemSet], items: Container[str], taken: Container[str] = ()) -> None:
    """Refuse sets that do not fit these items: raises CatalogueError naming the set.

    ``taken`` are ids of sets that are there already.
    """
    seen: set[str] = set()
    for item_set in sets:
        if item_set.set in items:
            raise CatalogueError(f"set {item_set.set!r} is named like an item, and an item is a set of one: rename it")
        if item_set.set in seen or item_set.set in taken:
            raise CatalogueError(f"set {item_set.set!r} is there twice: give each set once")
        if unknown := [item for item in item_set.items if item not in items]:
            raise CatalogueError(
                f"set {item_set.set!r} names item {unknown[0]!r}, which is not in the catalogue: correct the id, or "
                "leave it out"
            )
        if len(set(item_set.items)) < len(item_set.items):
            raise CatalogueError(f"set {item_set.set!r} names an item twice: each of its elements is there once")
        seen.add(item_set.set)


def encode_sets(sets: Iterable[ItemSet]) -> bytes:
    """Sets as JSON lines, one set a line."""
    return _encoder.encode_lines(list(sets))


def decode_sets(data: bytes, where: str) -> list[ItemSet]:
    """The inverse of :func:`encode_sets`; CatalogueError names ``where``, and which line."""
    sets = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            sets += [_decoder.decode(line)] if line.strip() else []
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            expected = '{"set": "photo-5", "items": ["face-1"]}'
            problem = undecodable(error, line, f"{where}: line {number}", ItemSet.__struct_fields__)
            raise CatalogueError(f"{problem}, expected {expected}") from error
    return sets


def _converted(where: str, name: Any, items: Iterable[Any]) -> ItemSet:
    try:
        return msgspec.convert({"set": name, "items": list(items)}, ItemSet)
    except msgspec.ValidationError as error:
        what = f"{where}: set {name!r:.80}"
        if not list(items):
            raise CatalogueError(f"{what} has no elements: name at least one item, or leave it out") from error
        raise CatalogueError(misfit(error, what, {"set": name, "items": list(items)})) from error


def _read_csv(path: Path) -> dict[str, list[str]]:
    """Items by set, both in the order of the lines."""
    sets: dict[str, list[str]] = {}
    lines = csv.DictReader(text_lines(path, LINE_CHARACTERS, encoding="utf-8-sig", newline=""), strict=True)
    require_columns(str(path), (SET, ITEM), list(lines.fieldnames or ()))
    for line in lines:
        if not line[SET] or not line[ITEM]:
            raise CatalogueError(f"{path}: line {lines.line_num} names no set, or no item: fill it or leave it out")
        sets.setdefault(line[SET], []).append(line[ITEM])
    return sets
