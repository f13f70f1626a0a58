"""Changes of items: decoded from JSON, checked, and prepared for a catalogue to keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError
from omdml.messages.decoding import misfit, undecodable
from omdml.streams.catalogues.tables.table import ID_LENGTH

MAX_ATTRIBUTES = 256
# Bytes of the texts of one item's attributes together.
MAX_ATTRIBUTE_BYTES = 1 << 20
# The largest scaled number. A metric squares its product with a number of its own, and float32 must hold that.
LARGEST = 1e12
KINDS = {bool: "true or false", float: "a number", str: "a text", list: "a list of texts"}
# What to do to give an attribute another kind.
BUILD_AGAIN = "build the catalogue again with --replace (in Redis: under another name)"
# Words that mean something else in filters, the name of the item's own id, and the empty name.
RESERVED = ("all", "any", "not", "id", "")
# PostgreSQL has no text with this character: one item that has it would keep omdml sync from writing all others.
NUL = "\0"

Value = None | bool | int | float | str | list[str]
Vectors = Mapping[str, NDArray[np.float32]]
# Turns raw vectors (n, d) of some modalities into what a catalogue stores of all of them.
Scale = Callable[[Mapping[str, NDArray[np.float64]]], Vectors]


class ChangeError(CatalogueError):
    """A change that cannot be made; ``reason`` is a code that never changes."""

    def __init__(self, message: str, reason: str = "invalid") -> None:
        super().__init__(message)
        self.reason = reason


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One item is put, gets other ``attributes``, or is deleted.

    ``text`` and ``picture`` can stand for ``features``, if the catalogue was built from texts and pictures. A change
    that has none of these three is only possible if the item exists.
    """

    id: str
    features: dict[str, list[float]] | None = None
    text: dict[str, str] | None = None
    picture: bytes | None = None
    attributes: dict[str, Value] | None = None
    delete: bool = False


class ChangeEntry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A change as a catalogue keeps it. One that puts takes the next row, one that deletes leaves its row behind.

    ``built`` says that a build wrote it, with the attributes that its inputs have.
    """

    id: str
    put: bool = False
    delete: bool = False
    attributes: dict[str, Value] | None = None
    built: bool = False


class Prepared(NamedTuple):
    """Changes of one request, which are made together or not at all.

    ``vectors`` hold a row for each that puts. ``thumbnails`` are files by the ids of items that brought a picture.
    """

    entries: Sequence[ChangeEntry]
    vectors: Vectors
    thumbnails: Mapping[str, bytes] = {}

    def as_built(self) -> Prepared:
        """The same changes, if a build makes them."""
        return self._replace(entries=[msgspec.structs.replace(entry, built=True) for entry in self.entries])


class Changed(NamedTuple):
    """What became of the changes of one request.

    ``position`` counts all changes of the catalogue's generation, at least up to these. ``unknown`` are the ids to
    delete that were not there.
    """

    position: int
    put: int
    attributes: int
    deleted: int
    unknown: list[str]


class ShownRows(NamedTuple):
    """Which rows of a catalogue are items, at one moment.

    The first ``rows`` rows are items, except ``gone`` of them, whose items were put again or deleted. ``alive`` (rows,)
    is False for these; it is None if there are none. ``position`` counts the changes so far, ``attributed`` those that
    may have changed attributes.
    """

    rows: int = 0
    gone: int = 0
    alive: NDArray[np.bool_] | None = None
    position: int = 0
    attributed: int = 0

    @property
    def items(self) -> int:
        """How many rows are items: the others were replaced or deleted."""
        return self.rows - self.gone

    def after(self, rows: int, gone: Sequence[int], changes: int, attributed: int) -> ShownRows:
        """What is shown after more rows and changes; ``gone`` are rows that are no items any more."""
        alive = self.alive
        if gone or alive is not None:
            alive = np.ones(rows, np.bool_)
            alive[: self.rows] = True if self.alive is None else self.alive
            alive[np.asarray(gone, np.int64)] = False
            alive.flags.writeable = False
        return ShownRows(rows, self.gone + len(gone), alive, self.position + changes, self.attributed + attributed)


def decode_change(line: bytes | Mapping[str, Any], where: str) -> Change:
    """The change in a line of JSON, or in its fields; ChangeError says what is wrong, and ``where``."""
    try:
        if isinstance(line, bytes):
            return checked(msgspec.json.decode(line, type=Change), where)
        return checked(msgspec.convert(line, Change), where)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        expected = '{"id": "17", "features": {...}, "attributes": {...}} or {"id": "17", "delete": true}'
        raise undecoded(error, line, where, Change, expected) from error


def undecoded(
    error: Exception, given: bytes | Mapping[str, Any], where: str, kind: type[msgspec.Struct], expected: str
) -> ChangeError:
    """The error that says why what was ``given`` is no change of this kind; ``expected`` is an example."""
    example = f'; expected {expected}; {{"text": {{"title": "..."}}, "picture": "BASE64"}} may stand for features'
    reason = "invalid" if isinstance(error, msgspec.ValidationError) else "not_json"
    field_names = kind.__struct_fields__
    if isinstance(given, bytes):
        problem = undecodable(error, given, where, field_names)
    else:
        problem = misfit(error, where, given, field_names)
    return ChangeError(f"{problem}{example}", reason)


def checked(change: Change, where: str) -> Change:
    """The change itself; ChangeError if nothing can be made of it, whatever the catalogue."""
    item = change.id
    if not 1 <= len(item) <= ID_LENGTH or "\n" in item or "\r" in item:
        raise ChangeError(f"{where}: id {item!r:.80}, expected text of 1 to {ID_LENGTH} characters without line breaks")
    if not _encodes(item):
        raise ChangeError(f"{where}: id {item!r:.80} cannot be written as UTF-8: correct it")
    # What an earlier release took can still be deleted.
    if NUL in item and not change.delete:
        raise ChangeError(f"{where}: id {item!r:.80} holds a NUL, which databases do not take: leave it out")
    brings = any(part is not None for part in (change.features, change.text, change.picture))
    if change.delete and (brings or change.attributes is not None):
        raise ChangeError(f"{where}: item {item!r} is deleted and has features or attributes: leave out one of the two")
    if not change.delete and not brings and change.attributes is None:
        raise ChangeError(f"{where}: item {item!r} has no features, no attributes and no delete: nothing to change")
    check_attributes(change.attributes or {}, f"{where}: item {item!r}")
    return change


def check_attributes(attributes: Mapping[str, Value], where: str) -> None:
    """Raise ChangeError if these cannot be an item's attributes."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise ChangeError(f"{where}: {len(attributes)} attributes, expected at most {MAX_ATTRIBUTES}", "oversize")
    for name, value in attributes.items():
        if name in RESERVED:
            raise ChangeError(f"{where}: an attribute cannot be called {name!r}: rename it")
        if type(value) is int and not _is_float(value):
            raise ChangeError(f"{where}: attribute {name!r} is a number that is too large: write it as a text")
        texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
        if any(NUL in text for text in (name, *texts)):
            raise ChangeError(f"{where}: {name!r:.80} holds a NUL, which databases do not take: leave it out")
    try:
        size = len(msgspec.json.encode(attributes))
    except UnicodeEncodeError as error:
        raise ChangeError(
            f"{where}: its attributes cannot be written as UTF-8 ({error.reason}): correct them"
        ) from error
    if size > MAX_ATTRIBUTE_BYTES:
        raise ChangeError(
            f"{where}: {size:,} bytes of attributes, expected at most {MAX_ATTRIBUTE_BYTES:,}", "oversize"
        )


def kind_of(value: Value) -> type:
    """The kind of an attribute's value. Whole numbers and fractions are of one kind."""
    return float if type(value) is int else type(value)


def present(attributes: Mapping[str, Value]) -> dict[str, Value]:
    """The attributes without those that say null, which means that there is no value."""
    return {name: value for name, value in attributes.items() if value is not None}


def prepare(dims: Mapping[str, int], changes: Iterable[Change], scale: Scale) -> Prepared:
    """What a catalogue whose raw vectors have these dimensions keeps of changes.

    Raises ChangeError: ``missing_modality``, ``dimension``, ``not_finite``, ``too_large``, ``invalid``.
    """
    entries, raw = [], []
    for change in changes:
        entries.append(
            ChangeEntry(
                change.id,
                change.features is not None,
                change.delete,
                None if change.attributes is None else present(change.attributes),
            )
        )
        if change.features is not None:
            _check_shape(dims, change)
            raw.append(change)
    if not raw:
        return Prepared(entries, {})
    vectors: dict[str, NDArray[np.float32]] = {}
    for names, places in _by_modalities(dims, raw).items():
        group = [raw[place] for place in places]
        try:
            scaled = scale(_matrices(names, group))
        except CatalogueError:
            _find_unfit(names, group, scale)
            raise
        for name, matrix in scaled.items():
            table = vectors.setdefault(name, np.empty((len(raw), matrix.shape[1]), matrix.dtype))
            table[places] = matrix
    for name, matrix in vectors.items():
        if len(rows := np.flatnonzero(np.abs(matrix).max(axis=1) > LARGEST)):
            raise ChangeError(
                f"item {raw[rows[0]].id!r}, modality {name!r}: it holds {np.abs(matrix[rows[0]]).max():.3g} as the "
                f"catalogue scales it, expected {LARGEST:.0g} at most: no metric could compare it",
                "too_large",
            )
    return Prepared(entries, vectors)


def _by_modalities(dims: Mapping[str, int], changes: Sequence[Change]) -> dict[tuple[str, ...], list[int]]:
    """The places of the changes, grouped by the modalities that they bring."""
    rows_of: dict[tuple[str, ...], list[int]] = {}
    for place, change in enumerate(changes):
        names = tuple(name for name in dims if name in (change.features or {}))
        rows_of.setdefault(names, []).append(place)
    return rows_of


def _matrices(names: Sequence[str], changes: Sequence[Change]) -> dict[str, NDArray[np.float64]]:
    return {name: np.array([(change.features or {})[name] for change in changes], np.float64) for name in names}


def _find_unfit(names: Sequence[str], changes: Sequence[Change], scale: Scale) -> None:
    """Raise ChangeError for the first item whose vectors make no finite numbers."""
    for change in changes:
        try:
            scale(_matrices(names, [change]))
        except CatalogueError as error:
            raise ChangeError(f"item {change.id!r}: {error}", "not_finite") from error


def _check_shape(dims: Mapping[str, int], change: Change) -> None:
    features = change.features or {}
    expected = f"the catalogue has {', '.join(f'{name} {dim}' for name, dim in dims.items())}"
    if not features:
        raise ChangeError(f"item {change.id!r} brings vectors of no modality: {expected}", "missing_modality")
    if unknown := sorted(features.keys() - dims.keys()):
        raise ChangeError(f"item {change.id!r} has an unknown modality {unknown[0]!r}: {expected}")
    for name, dim in dims.items():
        if name in features and len(features[name]) != dim:
            raise ChangeError(
                f"item {change.id!r}, modality {name!r} has {len(features[name])} numbers, the catalogue's have {dim}",
                "dimension",
            )


def _is_float(value: int) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
