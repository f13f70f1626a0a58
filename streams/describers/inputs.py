"""Describes the pictures and texts that a catalogue is built from, beside its other inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from omdml.errors import CatalogueError
from omdml.streams.bounded_files import opened
from omdml.streams.catalogues.folder import LEFT_OUT
from omdml.streams.catalogues.items import Items
from omdml.streams.catalogues.tables.inputs import Inputs
from omdml.streams.catalogues.tables.table import Table, chunks_of
from omdml.streams.describers.described import Description, describe, text_columns
from omdml.streams.describers.describer import Describer
from omdml.streams.describers.sources import TABLES, LeftOutFile, Sources, read_columns
from omdml.streams.describers.thumbnails import Thumbnails
from omdml.streams.disk import put

log = structlog.get_logger(__name__)


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
        asked = f"{'--pictures ' if describer and describer.pictures else ''}{texts}".strip() or "neither"
        raise CatalogueError(
            f"catalogue {catalogue.where} was built with {asked} of --pictures and --text: add items with the same, "
            "and with the same --onnx model, or build it again"
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
    """The ids of the first input, which says what the items are; None if there is no table."""
    if paths and paths[0].suffix.lower() in TABLES:
        return [item for item, _ in read_columns(paths[0], id_column, [])]
    return [item for chunk in chunks_of(tables[0]) for item in chunk.ids] if tables else None
