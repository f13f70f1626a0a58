"""Exact distances of a few rows, after a scan has said which ones can be among the nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.kernels.retrieval import scan

Array = NDArray[Any]


def squared_distances(matrix: Array, rows: NDArray[np.int64], point: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances (m,) of these ``rows`` (m,) of a matrix (n, d) to a point (d,). Each depends only on its row.

    Examples
    --------
    >>> squared_distances(np.eye(3, dtype=np.float32), np.array([2, 0]), np.zeros(3)).tolist()
    [1.0, 1.0]
    """
    squares = np.empty(len(rows))
    scan.squared_distances(matrix, rows, point, squares)
    return squares
