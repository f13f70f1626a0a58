"""Common ground of the learners of one weight a coordinate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from omdml.engines.diagonal import DiagonalEngine
from omdml.learners.shared.base import Array
from omdml.learners.shared.checks import expect, number
from omdml.learners.shared.quadruplets import QuadrupletLearner


class VectorLearner(QuadrupletLearner):
    """Learners of w_i (d_i,) a modality, of a distance that is linear in them."""

    # The names that ``init`` may have.
    starts: ClassVar[frozenset[str]]
    eta: float
    lam: float
    step: str

    def _check(self) -> None:
        expect(number(self.eta) and self.eta > 0, "eta", self.eta, "a rate above 0")
        expect(number(self.lam) and self.lam >= 0, "lam", self.lam, "a weight of at least 0")
        expect(self.step in ("pa", "ogd"), "step", self.step, "'pa' or 'ogd'")
        if isinstance(self.init, str):
            expect(self.init in self.starts, "init", self.init, f"one of {', '.join(sorted(self.starts))}, or arrays")
            return
        expect(set(self.init) == set(self.dims), "init", sorted(self.init), f"arrays for {sorted(self.dims)}")
        for name, array in self.init.items():
            sound = np.shape(array) == (self.dims[name],) and bool(np.isfinite(array).all())
            expect(sound, f"init[{name!r}]", np.shape(array), f"finite numbers of shape ({self.dims[name]},)")

    def _shapes(self, tensors: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        return {name: (size,) for name, size in self.dims.items()}

    @property
    def matrices(self) -> dict[str, Array]:
        """w_i (d_i,) of each modality, as learned."""
        engine: DiagonalEngine = self._started("matrices")
        return dict(zip(engine.names, engine.weights(), strict=True))
