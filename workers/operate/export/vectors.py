"""The arithmetic of an export: what a version makes of the items, and how far each of them moved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from omdml.errors import ConfigurationError, CorruptError
from omdml.metrics import CHUNK_ROWS
from omdml.snapshot import Snapshot
from omdml.streams.protocols.catalogue import Catalogue
from omdml.workers.operate.export.parts import Rows

Matrix = NDArray[np.float32]
ROOM = 16


def items_of(catalogue: Catalogue) -> tuple[list[str], NDArray[np.int64]]:
    """Ids of a catalogue's items, and their rows (n,): of each id the one that the catalogue finds it by, if any."""
    names = list(catalogue.ids)
    rows = np.flatnonzero(catalogue.rows(names) == np.arange(len(names)))
    return names if len(rows) == len(names) else [names[row] for row in rows], rows


def embedded(snapshot: Snapshot, catalogue: Catalogue, rows: NDArray[np.int64], task: str | None) -> Matrix:
    """What a snapshot makes of these rows of a catalogue: (n, R).

    Raises ConfigurationError for a metric without vectors or an unknown task, CorruptError for one that diverged.
    """
    metric = snapshot.metric
    if not metric.euclidean:
        raise ConfigurationError(
            f"model {snapshot.model!r} learns by {snapshot.learner!r}, whose metric makes no vector of an item: "
            "there is nothing to export"
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
        raise CorruptError(f"model {snapshot.model!r}, version {snapshot.version}: it diverged: roll back, and export")
    return embedding


def matched(now: Sequence[str], was: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the items that are in both, of one and of the other."""
    row_of = {name: row for row, name in enumerate(was)}
    both = [(row, row_of[name]) for row, name in enumerate(now) if name in row_of]
    rows = np.array(both, np.int64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def aligned(now: Matrix, was: Matrix, rows_now: NDArray[np.int64], rows_was: NDArray[np.int64]) -> Matrix:
    """The new embedding, padded to the old one's width and turned to lie as close to it as it can.

    That changes no distance between items. Versions of one metric order their directions again each time, so without it
    nearly all items would move with each version. The turn is the orthogonal Procrustes problem's: the singular vectors
    of ``now' was`` (Schoenemann 1966).
    """
    width = was.shape[1]
    padded = padded_to(width, now)
    cross = np.zeros((width, width))
    for start in range(0, len(rows_now), CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        cross += padded[rows_now[part]].T @ was[rows_was[part]]
    left, _, right = np.linalg.svd(cross)
    turned: Matrix = padded @ (left @ right).astype(np.float32)
    return turned


def padded_to(width: int, embedding: Matrix) -> Matrix:
    """The same vectors with zeros behind them."""
    padded = np.zeros((len(embedding), width), np.float32)
    padded[:, : embedding.shape[1]] = embedding
    return padded


def widened(embedding: Matrix) -> Matrix:
    """The same vectors, as wide as the next multiple of :data:`ROOM`.

    dca's embeddings get a few numbers wider or narrower from version to version. A vector database must be made again
    for another width.
    """
    return padded_to(-(-embedding.shape[1] // ROOM) * ROOM, embedding)


def distances(
    now: Matrix, was: Matrix, rows_now: NDArray[np.int64], rows_was: NDArray[np.int64]
) -> NDArray[np.float64]:
    """How far each of these rows lies from where it was: (len(rows_now),)."""
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
    """The vectors of these rows only."""
    named = None if rows.attributes is None else [rows.attributes[place] for place in places]
    return Rows([rows.ids[place] for place in places], rows.embedding[places], named, rows.removed)


def merged(was: Rows | None, part: Rows) -> Rows:
    """What readers have after a part: items that are in it take the place of those that were there; new ones follow."""
    if was is None:
        return part._replace(removed=())
    gone = set(part.removed)
    place_of = {name: place for place, name in enumerate(was.ids)}
    fresh = [row for row, name in enumerate(part.ids) if name not in place_of]
    known = [(row, place_of[name]) for row, name in enumerate(part.ids) if name in place_of]
    rows = np.array(known, np.int64).reshape(-1, 2)
    embedding = np.concatenate([was.embedding, part.embedding[fresh]])
    embedding[rows[:, 1]] = part.embedding[rows[:, 0]]
    ids = [*was.ids, *(part.ids[row] for row in fresh)]
    attributes = None
    if was.attributes is not None and part.attributes is not None:
        attributes = [*was.attributes, *(part.attributes[row] for row in fresh)]
        for row, place in known:
            attributes[place] = part.attributes[row]
    after = Rows(ids, embedding, attributes)
    if not gone:
        return after
    return chosen(after, np.array([place for place, name in enumerate(ids) if name not in gone], np.int64))
