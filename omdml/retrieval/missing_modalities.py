"""Fill modalities that an item or a query lacks with their conditional mean, given those that it has (MATHS 17)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from omdml.blas import one_blas_thread

Array = NDArray[Any]
# The most rows that the regression is learned from, and the most numbers in them.
SAMPLE, SAMPLE_NUMBERS = 1024, 1 << 22
# Strength of the ridge.
RIDGE = 0.1
# The most combinations of present modalities whose regressions are cached.
PATTERNS = 16


class Regression(NamedTuple):
    """A regression from the present modalities, side by side and minus their means, to each missing one."""

    # The present modalities of the sample's rows.
    sample: Array  # (m, D)
    # Coefficients by the name of the missing modality.
    coefficients: Mapping[str, Array]  # (m, d)


class Filling:
    """Conditional means of modalities, learned by ridge regression on complete items.

    With x the present modalities and y a missing one, both minus their means over the m rows of a sample,

        ``y(x) = Y' (X X' + r I)^-1 X x``,    ``r = 0.1 tr(X X') / min(m, D)``

    Parameters
    ----------
    features
        (n, d) for each modality, complete and scaled, at least one row. At most 1,024 of the rows are read.

    Examples
    --------
    >>> color = np.linspace(0, 1, 50)[:, None]
    >>> filling = Filling({"color": color, "text": 2 * color})
    >>> filling({"color": np.array([[0.5]])})["text"].round(3).tolist()
    [[1.0]]
    """

    def __init__(self, features: Mapping[str, Array]) -> None:
        count = len(next(iter(features.values())))
        most = min(SAMPLE, max(2, SAMPLE_NUMBERS // sum(x.shape[1] for x in features.values())))
        rows = np.sort(np.random.default_rng(0).choice(count, min(count, most), replace=False))
        sample = {name: np.asarray(x[rows], np.float64) for name, x in features.items()}
        self.means = {name: x.mean(axis=0) for name, x in sample.items()}
        self._sample = {name: x - self.means[name] for name, x in sample.items()}
        self._regression = lru_cache(PATTERNS)(self._learned)

    def __call__(self, features: Mapping[str, Array]) -> dict[str, NDArray[np.float32]]:
        """All modalities of rows (n, d) that have some of them. The present ones stay as they are."""
        present = tuple(name for name in self.means if name in features)
        if len(present) == len(self.means):
            return dict(features)
        sample, coefficients = self._regression(present)
        x = np.concatenate([features[name].astype(np.float64) - self.means[name] for name in present], axis=1)
        with one_blas_thread():
            products = x @ sample.T
            estimates = {
                name: (products @ factors + self.means[name]).astype(np.float32)
                for name, factors in coefficients.items()
            }
        return {name: features[name] if name in features else estimates[name] for name in self.means}

    def _learned(self, present: tuple[str, ...]) -> Regression:
        """The regression from these modalities to all others."""
        x = np.concatenate([self._sample[name] for name in present], axis=1)
        with one_blas_thread():
            gram = x @ x.T
            ridge = RIDGE * float(np.trace(gram)) / min(x.shape)
            # If all items are alike, the ridge is 0. Any positive number gives the mean then.
            factor = cho_factor(gram + (ridge if ridge > 0 else 1.0) * np.eye(len(x)))
            coefficients = {name: cho_solve(factor, y) for name, y in self._sample.items() if name not in present}
        return Regression(x, coefficients)
