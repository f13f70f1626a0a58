"""Describes the pictures and texts that a catalogue is built from, beside its other inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import msgspec
import structlog

from omdml.errors import CatalogueError
from omdml.streams.bounded_files import opened
from omdml.streams.catalogues.building.joined_ids import JoinedIds, check_id
from omdml.streams.catalogues.folder import LEFT_OUT
from omdml.streams.catalogues.items import Items
from omdml.streams.catalogues.tables.inputs import Inputs
from omdml.streams.catalogues.tables.table import ItemChunk, Table, chunks_of
from omdml.streams.describers.described import Description, describe, text_columns
from omdml.streams.describers.describer import Describer
from omdml.streams.describers.sources import TABLES, LeftOutFile, Sources, read_columns
from omdml.streams.describers.thumbnails import Thumbnails
from omdml.streams.disk import put

# What to do if a further input has ids that the first one lacks.
FIRST_SAYS = "the first input says which items there are: correct these ids, leave such rows out, or add items there"

log = structlog.get_logger(__name__)


class IdColumn:
    """The ids of a CSV or Parquet table as a table of its own, whatever other columns there are."""

    count: int | None = None
    numbered = False

    def __init__(self, path: Path, id_column: str) -> None:
        self.name = str(path)
        self._path, self._id_column = path, id_column

    def chunks(self, rows: int) -> Iterator[ItemChunk]:
        """See :class:`omdml.streams.catalogues.tables.table.Table`."""
        ids = (item for item, _ in read_columns(self._path, self._id_column, []))
        while chunk := list(islice(ids, rows)):
            yield ItemChunk(chunk, {})


def describe_inputs(
    sources: Sources,
    inputs: Inputs,
    tables: Sequence[Table],
    id_column: str,
    describer: Describer | None,
    scratch: Path,
    thumbnails: Thumbnails,
) -> Description:
    """Describe pictures and texts.

    ``tables`` are the inputs that have vectors; for the other arguments and what it raises see
    :func:`omdml.streams.describers.described.describe`.
    """
    sources.check()
    paths = [] if isinstance(inputs, Mapping) else [Path(path) for path in inputs]
    columns = text_columns(sources, paths, id_column)
    if describer is not None and not describer.serves(sources):
        describer = None
    return describe(sources, columns, _ids_of(paths, tables, id_column), describer, scratch, thumbnails)


def describer_for_more(catalogue: Items, sources: Sources) -> Describer:
    """The catalogue's describer, for items that are added; raises CatalogueError if it does not fit these sources."""
    describer = catalogue.describer
    if describer is None or not describer.serves(sources):
        texts = " ".join(f"--text {name}" for name in (describer.texts if describer else ()))
        built_with = f"{'--pictures ' if describer and describer.pictures else ''}{texts}".strip() or "neither"
        raise CatalogueError(
            f"catalogue {catalogue.where} was built with {built_with} of --pictures and --text: add items with the "
            "same, and with the same --onnx model, or build it again"
        )
    return describer


def write_left_out(folder: Path, left_out: Sequence[LeftOutFile]) -> None:
    """List the files that were left out, each as a line of JSON. If there are none, the list is removed."""
    if left_out:
        put(folder / LEFT_OUT, b"".join(msgspec.json.encode(entry) + b"\n" for entry in left_out))
        log.warning("pictures_left_out", count=len(left_out), listed_in=LEFT_OUT, first=left_out[0].reason)
    else:
        (folder / LEFT_OUT).unlink(missing_ok=True)


def read_left_out(folder: Path) -> list[LeftOutFile]:
    """The files that were left out at the newest build, or when items were last added."""
    path = folder / LEFT_OUT
    if not path.exists():
        return []
    with opened(path) as lines:
        return [msgspec.json.decode(line, type=LeftOutFile) for line in lines]


def _ids_of(paths: Sequence[Path], tables: Sequence[Table], id_column: str) -> list[str] | None:
    """The ids of the first input, which says what the items are; None if there is no table.

    The ids of tables without vectors are checked too, because nothing else reads them before pictures and texts are
    described, which takes long. Raises CatalogueError.
    """
    if paths and _has_columns(paths[0]):
        first: Table = IdColumn(paths[0], id_column)
    elif tables:
        first = tables[0]
    else:
        return None
    listed = _checked_ids(first, None, "")
    first_ids, with_vectors = dict.fromkeys(listed), {table.name for table in tables}
    for path in paths:
        if _has_columns(path) and str(path) not in {first.name, *with_vectors}:
            _checked_ids(IdColumn(path, id_column), first_ids, first.name)
    return listed


def _checked_ids(table: Table, known: Collection[str] | None, before: str) -> list[str]:
    """The ids of a table; raises CatalogueError if one cannot be an item's, or occurs twice, or is not ``known``."""
    listed, ids = [], JoinedIds(table, known)
    for chunk in chunks_of(table):
        for item in chunk.ids:
            if ids.see(item):
                check_id(table.name, item)
                listed.append(item)
    if not ids.rows:
        raise CatalogueError(f"{table.name}: the input has no items: add some, or leave it out")
    ids.check(before, FIRST_SAYS, needs_all=False)
    return listed


def _has_columns(path: Path) -> bool:
    return path.suffix.lower() in TABLES
