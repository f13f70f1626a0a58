"""A matrix that grows by rows while others read it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Spare rows, at least, before the matrix must be copied to grow. Memory that is never written to costs nothing.
SPARE_ROWS = 256


class GrowingMatrix:
    """A matrix that grows by rows. Only one thread may grow it; readers of an earlier one see unchanged rows.

    Growing copies nothing while there are spare rows. Otherwise it copies, and adds a quarter of spare rows.
    """

    def __init__(self, shape: tuple[int, ...], dtype: type[Any] = np.float32) -> None:
        self._matrix = np.empty((shape[0] + shape[0] // 4 + SPARE_ROWS, *shape[1:]), dtype)
        self._used = shape[0]
        self.rows = self._matrix[: self._used]

    def grown(self, more: Array) -> GrowingMatrix:
        """These rows (n, ...) followed by ``more`` (m, ...). If this matrix was grown before, the answer is a copy."""
        count = len(self.rows) + len(more)
        if self._used == len(self.rows) and count <= len(self._matrix):
            grown = copy.copy(self)
            # If this one is grown again, it must copy, because the spare rows are taken now.
            self._used = -1
            grown._used, grown.rows = count, self._matrix[:count]
        else:
            grown = GrowingMatrix((count, *self.rows.shape[1:]), self.rows.dtype.type)
            grown.rows[: len(self.rows)] = self.rows
        grown.rows[len(self.rows) :] = more
        return grown
