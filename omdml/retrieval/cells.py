"""Rows in cells around centres. A search looks into the nearest cells only.

This is the inverted file of faiss, with codes of one byte per coordinate. It finds most of the nearest rows, not
provably all. faiss is an optional extra: ``pip install 'omdml[approximate]'``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from omdml.errors import ConfigurationError

Array = NDArray[Any]
# The number of cells, as a multiple of the square root of the number of rows.
PER_ROOT = 4
# The number of rows that centres are learned from, for each cell.
SAMPLE_PER_CELL = 40
# Rounds of k-means. More rounds do not improve recall.
ROUNDS = 8
# Cells that a search looks into: their share, and the least number.
PROBED_SHARE, PROBED_LEAST = 1 / 10, 16
# The least number of rows in cells. With fewer, a full scan is as fast.
LEAST_ROWS = 20_000


def faiss() -> Any:
    """Import faiss; raises ConfigurationError, which says how to install it."""
    try:
        import faiss
    except ImportError as error:
        raise ConfigurationError(
            "index = 'approximate' needs faiss, which is not installed: pip install 'omdml[approximate]', or remove "
            "the option"
        ) from error
    return faiss


class Cells:
    """The rows of a matrix in cells. Rows are never added: the caller searches new rows separately.

    Parameters
    ----------
    matrix : (n, d), float32
        At least ``LEAST_ROWS`` rows.
    """

    def __init__(self, matrix: Array) -> None:
        library = faiss()
        # Build on this thread only. The other threads are for searches.
        library.omp_set_num_threads(1)
        self.count, width = matrix.shape
        number = int(PER_ROOT * self.count**0.5)
        quantizer = library.IndexFlatL2(width)
        index = library.IndexIVFScalarQuantizer(quantizer, width, number, library.ScalarQuantizer.QT_8bit)
        index.cp.niter, index.cp.seed = ROUNDS, 1
        draw = np.random.default_rng(0)
        size = min(self.count, SAMPLE_PER_CELL * number)
        with threadpool_limits(1, user_api="blas"):
            index.train(matrix[np.sort(draw.choice(self.count, size, replace=False))])
            index.add(matrix)
        self._index, self._library = index, library
        self.probe(PROBED_SHARE)
        self.nbytes = self.count * (width + 8) + number * width * 4

    def probe(self, share: float) -> None:
        """Set the share of the cells that searches look into. More cells find more rows, and take longer."""
        self._probed = max(PROBED_LEAST, round(self._index.nlist * share))

    def nearest(self, point: NDArray[np.float64], count: int, among: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """Numbers of at most ``count`` rows near a point (d,), rising; only of rows that are True in ``among`` (n,)."""
        self._library.omp_set_num_threads(1)
        parameters = self._library.SearchParametersIVF(nprobe=self._probed)
        if among is not None:
            bits = np.packbits(among[: self.count], bitorder="little")
            parameters = self._library.SearchParametersIVF(
                nprobe=self._probed, sel=self._library.IDSelectorBitmap(bits)
            )
        rows = self._index.search(point[None].astype(np.float32), min(count, self.count), params=parameters)[1][0]
        return np.sort(rows[rows >= 0])
