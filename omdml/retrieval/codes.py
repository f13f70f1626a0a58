"""Rows as codes of one byte per coordinate, and a proof of which rows can be among the nearest (MATHS 18)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from omdml.kernels.retrieval.scan import encode, encode_queries, scan
from omdml.retrieval.growing_matrix import GrowingMatrix

Array = NDArray[Any]


class Candidates(NamedTuple):
    """Row numbers, rising, that can be among the nearest of a query, and a lower bound of each one's distance."""

    rows: NDArray[np.int64]
    lows: NDArray[np.float64]

    def likely(self, k: int) -> NDArray[np.int64]:
        """The k rows with the lowest bounds, rising, or all rows if there are no more."""
        if k >= len(self.rows):
            return self.rows
        return np.sort(self.rows[np.argpartition(self.lows, k - 1)[:k]])

    def within(self, distance: float) -> NDArray[np.int64]:
        """Rows, rising, that can be as close as ``distance``."""
        return self.rows[self.lows <= distance]


class Codes:
    """Codes of the rows of a matrix: one byte per coordinate, and twelve bytes per row for the error of the codes.

    Codes never change. :meth:`grown` makes new ones, which share memory as :class:`GrowingMatrix` does.

    Parameters
    ----------
    matrix : (n, d)
        Finite, with squared lengths that float32 can hold; the same goes for points.

    Examples
    --------
    >>> matrix = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    >>> candidates = Codes(matrix).candidates(matrix[:1].astype(np.float64), 3)[0]
    >>> exact = np.linalg.norm(matrix[candidates.rows] - matrix[0], axis=1)
    >>> bool(np.all(candidates.lows <= exact)), len(candidates.rows)
    (True, 3)
    """

    def __init__(self, matrix: Array) -> None:
        count, width = matrix.shape
        self._codes = GrowingMatrix((count, width), np.int8)
        self._scales, self._squares, self._radii = (GrowingMatrix((count,)) for _ in range(3))
        encode(matrix, self._codes.rows, self._scales.rows, self._squares.rows, self._radii.rows)

    def grown(self, more: Array) -> Self:
        """The codes of these rows, followed by the rows ``more`` (m, d)."""
        added, grown = Codes(more), copy.copy(self)
        grown._codes = self._codes.grown(added._codes.rows)
        grown._scales = self._scales.grown(added._scales.rows)
        grown._squares = self._squares.grown(added._squares.rows)
        grown._radii = self._radii.grown(added._radii.rows)
        return grown

    @property
    def radii(self) -> NDArray[np.float32]:
        """Upper bounds (n,) of the distance between each row and its code."""
        return self._radii.rows

    @property
    def nbytes(self) -> int:
        """Bytes of memory of codes, scales, squares and radii."""
        return sum(part.rows.nbytes for part in (self._codes, self._scales, self._squares, self._radii))

    def candidates(
        self,
        points: NDArray[np.float64],
        k: int,
        among: NDArray[np.bool_] | None = None,
        hidden: Sequence[NDArray[np.int64]] | None = None,
        radii: NDArray[np.float32] | None = None,
        widths: NDArray[np.float64] | float = 0.0,
        begin: int = 0,
        most: int | None = None,
    ) -> list[Candidates]:
        """For each point, every row that can be among its k nearest; an empty list if there are too many such rows.

        Parameters
        ----------
        points : (Q, d)
        k
            At least 1.
        among : (n,)
            True for rows that count; None: all rows count.
        hidden
            Rows that do not count, rising, for each point.
        radii : (n,)
            How far each row may be from its code, if it may be further than ``self.radii``.
        widths : (Q,)
            How far each point may be from its true place.
        begin
            Rows before this one do not count.
        most
            Give up, and return an empty list, as soon as a point has more rows than this.
        """
        count, queries = len(self.radii), len(points)
        if hidden is None:
            hidden = [np.empty(0, np.int64)] * queries
        codes, (units, lengths) = np.empty(points.shape, np.int16), np.empty((2, queries))
        query_widths = np.full(queries, widths)
        encode_queries(points, codes, units, lengths, query_widths)
        best, counts = np.full((queries, min(k, count)), np.inf), np.zeros(queries, np.int64)
        # np.empty takes no memory for pages that the scan never writes to.
        rows, lows = np.empty((queries, count), np.int64), np.empty((queries, count))
        if count:
            scan(
                self._codes.rows, self._scales.rows, self._squares.rows, self.radii if radii is None else radii,
                codes, units, lengths, query_widths, np.empty(0, np.bool_) if among is None else among,
                np.concatenate(hidden), np.cumsum([len(part) for part in hidden]), best, rows, lows, counts, begin,
                count if most is None else most,
            )  # fmt: skip
            if most is not None and counts.max() > most:
                return []
        tops = best[:, 0] if best.shape[1] else np.full(queries, np.inf)
        candidates = []
        for row, low, size, top in zip(rows, lows, counts.tolist(), tops, strict=True):
            possible = low[:size] <= top
            candidates.append(Candidates(row[:size][possible], low[:size][possible]))
        return candidates
