"""A matrix that grows by rows while others read it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# A room can grow by at least so many rows before it is copied. Memory that is not used costs nothing.
SPARE_ROWS = 256


class Room:
    """A matrix that grows by rows. Whoever has the rows of before keeps them as they are; one thread grows it.

    A growth copies nothing as long as there is room; then it takes a quarter more.
    """

    def __init__(self, shape: tuple[int, ...], dtype: type[Any] = np.float32) -> None:
        self._matrix = np.empty((shape[0] + shape[0] // 4 + SPARE_ROWS, *shape[1:]), dtype)
        self._used = shape[0]
        self.rows = self._matrix[: self._used]

    def grown(self, more: Array) -> Room:
        """Room that holds ``more`` rows behind these. If somebody else grew it first, it is a copy."""
        count = len(self.rows) + len(more)
        if self._used == len(self.rows) and count <= len(self._matrix):
            grown = copy.copy(self)
            # Whoever grows the room of before again must find that its rows are taken.
            self._used = -1
            grown._used, grown.rows = count, self._matrix[:count]
        else:
            grown = Room((count, *self.rows.shape[1:]), self.rows.dtype.type)
            grown.rows[: len(self.rows)] = self.rows
        grown.rows[len(self.rows) :] = more
        return grown
