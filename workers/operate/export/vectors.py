"""The arithmetic of an export: the vectors of items under a version, and how far each of them moved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from omdml.errors import ConfigurationError, CorruptError
from omdml.metrics import CHUNK_ROWS
from omdml.snapshot import Snapshot
from omdml.streams.protocols.catalogue import Catalogue
from omdml.workers.operate.export.layout import Rows

Matrix = NDArray[np.float32]
# Embeddings of an export that follows are padded to a multiple of this.
ROOM = 16


def items_of(catalogue: Catalogue) -> tuple[int, list[str], NDArray[np.int64]]:
    """How many rows a catalogue has, the ids of its items, and their rows (n,).

    Rows that an id no longer leads to are left out.
    """
    names = list(catalogue.ids)
    rows = np.flatnonzero(catalogue.rows(names) == np.arange(len(names)))
    return len(names), names if len(rows) == len(names) else [names[row] for row in rows], rows


def embedded(snapshot: Snapshot, catalogue: Catalogue, rows: NDArray[np.int64], task: str | None) -> Matrix:
    """The vectors (n, R) of these rows of a catalogue under a snapshot.

    Raises ConfigurationError for a metric without vectors or an unknown task, CorruptError for a metric that diverged.
    """
    metric = snapshot.metric
    if not metric.euclidean:
        raise ConfigurationError(
            f"model {snapshot.model!r} learns with {snapshot.learner!r}, whose metric has no vectors of items: there "
            "is nothing to export"
        )
    if task is not None and task not in metric.tasks:
        raise ConfigurationError(f"--task {task!r}: model {snapshot.model!r} has {', '.join(metric.tasks) or 'none'}")
    features = {name: catalogue.features[name] for name in metric.dims}
    chunks = []
    for start in range(0, max(1, len(rows)), CHUNK_ROWS):
        part = rows[start : start + CHUNK_ROWS]
        chunks.append(np.asarray(metric.embed({name: table[part] for name, table in features.items()}, task)))
    embedding = np.concatenate(chunks).astype(np.float32, copy=False)
    if not np.isfinite(embedding).all():
        raise CorruptError(
            f"model {snapshot.model!r}, version {snapshot.version}: the metric diverged: roll back, and export again"
        )
    return embedding


def matched(now: Sequence[str], was: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows in ``now`` and the rows in ``was`` of the items that are in both."""
    row_of = {name: row for row, name in enumerate(was)}
    both = [(row, row_of[name]) for row, name in enumerate(now) if name in row_of]
    rows = np.array(both, np.int64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def aligned(now: Matrix, was: Matrix, rows_now: NDArray[np.int64], rows_was: NDArray[np.int64]) -> Matrix:
    """The new embedding, padded to the width of the old one and rotated as close to it as possible.

    A rotation changes no distance between items. Each version orders its directions again, so without it nearly all
    items would move with each version. The rotation solves the orthogonal Procrustes problem, with the singular vectors
    of ``now' was`` (Schoenemann 1966).
    """
    width = was.shape[1]
    padded = padded_to(width, now)
    cross = np.zeros((width, width))
    for start in range(0, len(rows_now), CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        cross += padded[rows_now[part]].T @ was[rows_was[part]]
    left, _, right = np.linalg.svd(cross)
    rotated: Matrix = padded @ (left @ right).astype(np.float32)
    return rotated


def padded_to(width: int, embedding: Matrix) -> Matrix:
    """The same vectors, with zeros appended up to this width."""
    padded = np.zeros((len(embedding), width), np.float32)
    padded[:, : embedding.shape[1]] = embedding
    return padded


def widened(embedding: Matrix) -> Matrix:
    """The same vectors, padded to the next multiple of :data:`ROOM`.

    Embeddings of dca get a few numbers wider or narrower from version to version, but another width means that the
    index in a vector database must be built again.
    """
    return padded_to(-(-embedding.shape[1] // ROOM) * ROOM, embedding)


def distances(
    now: Matrix, was: Matrix, rows_now: NDArray[np.int64], rows_was: NDArray[np.int64]
) -> NDArray[np.float64]:
    """How far each of these rows moved: (len(rows_now),)."""
    far = np.empty(len(rows_now))
    for start in range(0, len(far), CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        far[part] = np.linalg.norm(now[rows_now[part]] - was[rows_was[part]], axis=1)
    return far


def spread(embedding: Matrix) -> float:
    """Root mean square distance of the items from their mean."""
    if not len(embedding):
        return 0.0
    mean = embedding.mean(axis=0, dtype=np.float64)
    squares = float(np.einsum("ij,ij->", embedding, embedding, dtype=np.float64)) / len(embedding)
    return float(np.sqrt(max(0.0, squares - mean @ mean)))


def chosen(rows: Rows, places: NDArray[np.int64]) -> Rows:
    """Only the rows at these places."""
    attributes = None if rows.attributes is None else [rows.attributes[place] for place in places]
    return Rows([rows.ids[place] for place in places], rows.embedding[places], attributes, rows.removed)


def merged(before: Rows | None, part: Rows) -> Rows:
    """What readers have after a part: its items replace earlier ones with the same id, and new items follow at the end.

    Items that the part lists as removed are gone.
    """
    if before is None:
        return part._replace(removed=())
    removed = set(part.removed)
    place_of = {name: place for place, name in enumerate(before.ids)}
    new_rows = [row for row, name in enumerate(part.ids) if name not in place_of]
    replaced = [(row, place_of[name]) for row, name in enumerate(part.ids) if name in place_of]
    rows = np.array(replaced, np.int64).reshape(-1, 2)
    embedding = np.concatenate([before.embedding, part.embedding[new_rows]])
    embedding[rows[:, 1]] = part.embedding[rows[:, 0]]
    ids = [*before.ids, *(part.ids[row] for row in new_rows)]
    attributes = None
    if before.attributes is not None and part.attributes is not None:
        attributes = [*before.attributes, *(part.attributes[row] for row in new_rows)]
        for row, place in replaced:
            attributes[place] = part.attributes[row]
    after = Rows(ids, embedding, attributes)
    if not removed:
        return after
    return chosen(after, np.array([place for place, name in enumerate(ids) if name not in removed], np.int64))
