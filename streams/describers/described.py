"""Pictures and texts as a table of vectors. A catalogue is built from it as from any other table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray

from omdml.errors import CatalogueError, quoted
from omdml.retrieval.missing_modalities import Filling
from omdml.streams.catalogues.manifest import MODALITY_NAME
from omdml.streams.catalogues.matrix import extend, map_rows
from omdml.streams.catalogues.progress import progress
from omdml.streams.catalogues.tables.table import ItemChunk
from omdml.streams.describers.describer import Describer, PictureDescriber
from omdml.streams.describers.looks import LOOKS, modality_of
from omdml.streams.describers.onnx_model import MODALITY, read_model
from omdml.streams.describers.pool import describe_files
from omdml.streams.describers.sources import TABLES, LeftOutFile, Sources, columns_of, list_pictures, read_columns
from omdml.streams.describers.thumbnails import Thumbnails
from omdml.streams.describers.words import Words, sample_of

# How many rows are filled at a time, and from how many complete rows at most the filling is learned.
FILL_ROWS, MOST_COMPLETE = 1024, 4096

log = structlog.get_logger(__name__)

Matrix = NDArray[np.float32]
Mask = NDArray[np.bool_]


class TextColumn(NamedTuple):
    """A column of text, and the table that it is in."""

    path: Path
    id_column: str
    name: str

    def rows(self) -> Iterator[tuple[str, str]]:
        """Id and text of each row."""
        return ((item, texts[0]) for item, texts in read_columns(self.path, self.id_column, [self.name]))


class DescribedItems:
    """A table of raw vectors of items.

    ``matrices`` has (n, d) for each modality, and ``has`` (n,) says which items brought it. The others have its
    conditional mean (MATHS 17).
    """

    name = "pictures and texts"
    numbered = False

    def __init__(self, ids: Sequence[str], matrices: Mapping[str, Matrix], has: Mapping[str, Mask]) -> None:
        self.ids, self.matrices, self.has = ids, matrices, has
        self.count: int | None = len(ids)

    def chunks(self, rows: int) -> Iterator[ItemChunk]:
        for start in range(0, len(self.ids), rows):
            end = start + rows
            yield ItemChunk(self.ids[start:end], {name: matrix[start:end] for name, matrix in self.matrices.items()})


class Description(NamedTuple):
    """What :func:`describe` returns: the table, what described it, and the files that were left out."""

    items: DescribedItems
    describer: Describer
    left_out: list[LeftOutFile]


def text_columns(sources: Sources, inputs: Sequence[Path], id_column: str) -> list[TextColumn]:
    """Find the table of each column of text; raises CatalogueError if it is in no table, or in two."""
    reserved = [modality_of(look) for look in LOOKS] + [MODALITY] if sources.pictures is not None else []
    for name in sources.texts:
        if not re.match(MODALITY_NAME, name) or name in reserved:
            raise CatalogueError(
                f"--text {name}: the modality would be named like its column, but cannot have this name: rename the "
                f"column to letters, digits and _ . -, other than {', '.join(reserved) or 'any modality'}"
            )
    tables = {path: columns_of(path) for path in inputs if path.suffix.lower() in TABLES}
    present = []
    for name in sources.texts:
        holders = [path for path, columns in tables.items() if name in columns]
        if len(holders) != 1:
            shown = ", ".join(f"{path} ({', '.join(columns[:20])})" for path, columns in tables.items()) or "no table"
            count = "no table has" if not holders else f"{len(holders)} tables have"
            raise CatalogueError(f"--text {name}: {count} this column, expected one; the inputs are {shown}")
        present.append(TextColumn(holders[0], id_column, name))
    return present


def new_describer(sources: Sources, columns: Sequence[TextColumn], ids: Sequence[str]) -> Describer:
    """Make a describer for these sources; its words are learned from their texts."""
    pictures = None
    if sources.pictures is not None:
        model = read_model(sources.model, sources.preparation) if sources.model else None
        pictures = PictureDescriber(list(LOOKS), model)
    chosen = set(sample_of(len(ids)).tolist())
    texts = {}
    for column in columns:
        sample = [text for number, (_, text) in enumerate(column.rows()) if number in chosen]
        try:
            texts[column.name] = Words.fit(sample)
        except CatalogueError as error:
            raise CatalogueError(f"--text {column.name}: {error}") from error
    return Describer(pictures, texts)


def describe(
    sources: Sources,
    columns: Sequence[TextColumn],
    ids: Sequence[str] | None,
    describer: Describer | None,
    scratch: Path,
    thumbnails: Thumbnails,
) -> Description:
    """Describe pictures and texts.

    Parameters
    ----------
    columns
        The columns of text, see :func:`text_columns`.
    ids
        The ids of the items, if tables list them. If it is None, each readable picture is an item.
    describer
        The describer of the existing catalogue, if it is to be used again.
    scratch
        A folder for files with the vectors.
    thumbnails
        Takes the small pictures, in the order of the items.

    Raises
    ------
    CatalogueError
        There is no item, or no item has every modality, or a source cannot be read.
    """
    paths, left_out = list_pictures(sources.pictures) if sources.pictures is not None else ({}, [])
    if sources.pictures is not None and not paths:
        raise CatalogueError(f"--pictures {sources.pictures}: no picture in this folder, expected files such as ID.jpg")
    if ids is not None:
        item_ids = set(ids)
        unmatched = [path for item, path in paths.items() if item not in item_ids]
        if paths and len(unmatched) == len(paths):
            raise CatalogueError(
                f"--pictures {sources.pictures}: no picture is named by the id of an item: the first picture is "
                f"{unmatched[0].name}, the first item {quoted(ids[0])}. Name each file by an id, as in ID.jpg, or name "
                "the column of the ids (--id-column)"
            )
        reason = "no row of the tables has its name as an id"
        left_out += [LeftOutFile(str(path), reason) for path in unmatched]
    listed = list(paths) if ids is None else list(ids)
    used_describer = describer or new_describer(sources, columns, listed)
    matrices: dict[str, Matrix] = {}
    has: dict[str, Mask] = {}
    if used_describer.pictures:
        collected = _Pictures(used_describer.pictures, len(listed), scratch)
        listed = collected.describe(listed, paths, thumbnails, left_out, keep_all=ids is not None)
        matrices, has = collected.finished(len(listed))
    row_of = {item: row for row, item in enumerate(listed)}
    for column in columns:
        matrices[column.name], has[column.name] = _describe_texts(
            used_describer.texts[column.name], column, row_of, scratch
        )
    _warn_of_lacking(listed, has)
    _fill(matrices, has)
    return Description(DescribedItems(listed, matrices, has), used_describer, left_out)


class _Pictures:
    """Collects the vectors of pictures in files while they are computed."""

    def __init__(self, describer: PictureDescriber, most: int, scratch: Path) -> None:
        self._describer, self._scratch = describer, scratch
        self._dims = describer.dims
        self._matrices = {name: extend(scratch / f"{name}.npy", 0, most, dim) for name, dim in self._dims.items()}
        self._has = np.zeros(most, np.bool_)

    def describe(
        self,
        ids: Sequence[str],
        paths: Mapping[str, Path],
        thumbnails: Thumbnails,
        left_out: list[LeftOutFile],
        keep_all: bool,
    ) -> list[str]:
        """Describe the pictures of these items; returns the items that stay, in the same order.

        Items without a readable picture stay only if ``keep_all``.
        """
        files = [paths[item] for item in ids if item in paths]
        outcomes = describe_files(self._describer, files)
        listed: list[str] = []
        with progress("describing pictures", len(files)) as advance:
            for item in ids:
                outcome = next(outcomes) if item in paths else None
                if isinstance(outcome, str):
                    left_out.append(LeftOutFile(str(paths[item]), outcome))
                    outcome = None
                if outcome is not None:
                    self._has[len(listed)] = True
                    for name, vector in outcome.vectors.items():
                        self._matrices[name][len(listed)] = vector
                if outcome is not None or keep_all:
                    thumbnails.add(item, outcome.thumbnail if outcome else None)
                    listed.append(item)
                advance(item in paths)
        if not self._has.any():
            reason = f"; {left_out[0].file}: {left_out[0].reason}" if left_out else ""
            raise CatalogueError(f"none of the {len(files)} pictures could be described{reason}")
        thumbnails.close()
        return listed

    def finished(self, count: int) -> tuple[dict[str, Matrix], dict[str, Mask]]:
        """The first ``count`` rows, and which of them have pictures."""
        matrices = {
            name: map_rows(self._scratch / f"{name}.npy", count, dim, writable=True) for name, dim in self._dims.items()
        }
        return matrices, dict.fromkeys(matrices, self._has[:count])


def _describe_texts(words: Words, column: TextColumn, row_of: Mapping[str, int], scratch: Path) -> tuple[Matrix, Mask]:
    matrix = extend(scratch / f"text-{column.name}.npy", 0, len(row_of), words.dim)
    has = np.zeros(len(row_of), np.bool_)
    with progress(f"describing {column.name}", len(row_of)) as advance:
        for item, text in column.rows():
            row = row_of.get(item)
            vector = words.describe(text) if row is not None else None
            if row is not None and vector is not None:
                matrix[row], has[row] = vector, True
            advance(1)
    return matrix, has


def _warn_of_lacking(ids: Sequence[str], has: Mapping[str, Mask]) -> None:
    """Log how many items lack a modality. One line is enough for all modalities that the same items lack."""
    lacked: dict[bytes, list[str]] = {}
    for name, mask in has.items():
        if not mask.all():
            lacked.setdefault(mask.tobytes(), []).append(name)
    for names in lacked.values():
        lacking = np.flatnonzero(~has[names[0]])
        log.warning(
            "modality_filled_in",
            modality=", ".join(names),
            items=len(lacking),
            of=len(ids),
            first=ids[lacking[0]],
            reason="they have no picture that can be read, or no known word",
            action="what they lack is filled in with what is most likely, given the rest of the item",
        )


def _fill(matrices: Mapping[str, Matrix], has: Mapping[str, Mask]) -> None:
    """Give items that lack modalities the conditional means of these, given those that they have."""
    is_complete = np.all(list(has.values()), axis=0)
    if is_complete.all():
        return
    complete = np.flatnonzero(is_complete)
    if not len(complete):
        raise CatalogueError(
            f"no item has all of {', '.join(matrices)}, but at least one must, because what others lack is filled in "
            "from such items: check that the pictures are named by the ids of the table"
        )
    sample = complete[np.unique(np.linspace(0, len(complete) - 1, min(len(complete), MOST_COMPLETE)).astype(int))]
    filling = Filling({name: matrix[sample] for name, matrix in matrices.items()})
    lacking = np.flatnonzero(~is_complete)
    patterns = np.stack([has[name][lacking] for name in matrices], axis=1)
    for pattern in np.unique(patterns, axis=0):
        rows = lacking[(patterns == pattern).all(axis=1)]
        present = [name for name, is_present in zip(matrices, pattern, strict=True) if is_present]
        for start in range(0, len(rows), FILL_ROWS):
            chunk = rows[start : start + FILL_ROWS]
            means = filling({name: matrices[name][chunk] for name in present}) if present else filling.means
            for name in matrices.keys() - set(present):
                matrices[name][chunk] = means[name]
