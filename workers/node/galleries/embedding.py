"""Embeds the items of a gallery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CorruptError
from omdml.metrics import CHUNK_ROWS, Metric
from omdml.metrics.cosine import UnitVectors
from omdml.retrieval.growing_matrix import GrowingMatrix

Array = NDArray[Any]
Features = Mapping[str, Array]


def embedded_centred(
    metric: Metric, features: Features, task: str | None, units: UnitVectors | None
) -> tuple[GrowingMatrix, Array]:
    """Embedding (n, R) moved so that its first rows lie around zero, and by how much it was moved.

    Distances stay what they are; ``|e|^2 - 2 e.q`` loses fewer digits near zero. If ``units`` are given, the rows are
    made from them.
    """
    count = len(next(iter(features.values())))
    embedding, centre = GrowingMatrix((count, 0)), np.zeros(0)
    for start in range(0, count, CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        if units:
            chunk = units.embed(part)
        else:
            chunk = metric.embed({name: matrix[part] for name, matrix in features.items()}, task)
        if start == 0:
            centre = chunk.mean(axis=0, dtype=np.float64)
            if not np.isfinite(centre).all():
                # If this centre were subtracted, no item would be finite, and nobody could tell which one was at fault.
                raise diverged(chunk, start)
            embedding = GrowingMatrix((count, chunk.shape[1]))
        place = embedding.rows[start : start + len(chunk)]
        np.subtract(chunk, centre.astype(chunk.dtype), out=place, casting="same_kind")
    return embedding, centre


def diverged(embedding: Array, first: int) -> CorruptError:
    """The error about the item that lies farthest out, among embedded ones (n, R) from the row ``first`` on."""
    # If all of them are finite, the farthest one moved the centre so far that squares of others overflow, too.
    row = first + int(np.nan_to_num(np.abs(embedding), nan=np.inf).max(axis=1).argmax())
    return CorruptError(f"the metric embeds item {row} to values that are not finite: it diverged, roll back")


def squares_of(embedding: Array, first: int) -> NDArray[np.float32]:
    """Squared lengths of embedded items from the row ``first`` on; CorruptError if one is not finite."""
    squares: NDArray[np.float32] = np.einsum("ij,ij->i", embedding, embedding)
    if not np.isfinite(squares).all():
        raise diverged(embedding, first)
    return squares
