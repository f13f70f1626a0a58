"""A matrix that grows by rows while others read it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# The least number of spare rows. Memory that is never written to costs nothing.
SPARE_ROWS = 256


class GrowingMatrix:
    """A matrix that never changes, but can be grown: :meth:`grown` returns a longer one. Any thread may call it.

    Growing copies nothing while there are spare rows. Otherwise it copies the rows, and adds a quarter of spare rows.
    """

    def __init__(self, shape: tuple[int, ...], dtype: type[Any] = np.float32) -> None:
        matrix = np.empty((shape[0] + shape[0] // 4 + SPARE_ROWS, *shape[1:]), dtype)
        self.rows = matrix[: shape[0]]
        # The rows and the spare ones after them, until a thread takes these.
        self._spare = [matrix]

    def grown(self, more: Array) -> GrowingMatrix:
        """These rows (n, ...) followed by ``more`` (m, ...). If this matrix was grown before, the rows are copied."""
        count = len(self.rows) + len(more)
        try:
            # Only one thread gets the spare rows, because pop is atomic. For the others, the rows must be copied.
            matrix = self._spare.pop()
        except IndexError:
            matrix = self.rows
        if count <= len(matrix):
            grown = copy.copy(self)
            grown.rows, grown._spare = matrix[:count], [matrix]
        else:
            grown = GrowingMatrix((count, *self.rows.shape[1:]), self.rows.dtype.type)
            grown.rows[: len(self.rows)] = self.rows
        grown.rows[len(self.rows) :] = more
        return grown
