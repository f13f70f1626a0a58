"""What Diagonal and Signed share: one weight for each coordinate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from omdml.learners.shared.base import Array
from omdml.learners.shared.checks import check_rate, check_shapes, check_step, expect, is_number
from omdml.learners.shared.quadruplets import QuadrupletLearner

if TYPE_CHECKING:
    from omdml.engines.diagonal import DiagonalEngine


class VectorLearner(QuadrupletLearner):
    """Learners of weights w_i (d_i,) for each modality, with a distance that is linear in them."""

    # Names of starts that ``init`` accepts.
    starts: ClassVar[frozenset[str]]
    eta: float
    lam: float
    step: str

    def _check(self) -> None:
        check_rate("eta", self.eta)
        expect(is_number(self.lam) and self.lam >= 0, "lam", self.lam, "a weight of at least 0")
        check_step(self.step)
        if isinstance(self.init, str):
            expect(self.init in self.starts, "init", self.init, f"one of {', '.join(sorted(self.starts))}, or arrays")
        else:
            check_shapes(self.init, self._shapes({}))

    def _shapes(self, tensors: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        return {name: (size,) for name, size in self.dims.items()}

    @property
    def matrices(self) -> dict[str, Array]:
        """w_i (d_i,) of each modality, as learned. Raises NotStarted."""
        engine: DiagonalEngine = self._started("matrices")
        return dict(zip(engine.names, engine.weights(), strict=True))
