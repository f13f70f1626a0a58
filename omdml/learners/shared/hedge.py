"""What learners share that weigh their modalities by Hedge (MATHS 10)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from omdml.learners.shared.base import Learner
from omdml.learners.shared.checks import expect, is_number

if TYPE_CHECKING:
    from omdml.engines.base import HedgeEngine


class HedgeLearner(Learner):
    """Learners with a weight for each modality, which falls with the modality's mistakes.

    Losses fade by ``1 - 1 / memory`` with each gated comparison, and ``beta`` discounts a modality that was wrong.
    """

    beta: float
    memory: float
    gamma: float

    def _check_hedge(self) -> None:
        """Raise ParameterError if ``beta``, ``memory`` or ``gamma`` is out of range."""
        expect(is_number(self.beta) and 0 < self.beta <= 1, "beta", self.beta, "a discount in (0, 1]")
        fades = is_number(self.memory) and (self.memory == 0 or self.memory >= 1)
        expect(fades, "memory", self.memory, "a number of comparisons of at least 1, or 0 to never forget")
        expect(is_number(self.gamma), "gamma", self.gamma, "a finite margin")

    @property
    def _keep(self) -> float:
        """Factor by which losses fade with each gated comparison."""
        return 1.0 - 1.0 / self.memory if self.memory else 1.0

    @property
    def weights(self) -> dict[str, float]:
        """theta_i, the weight of each modality; 1 in total. Raises NotStarted."""
        engine: HedgeEngine = self._started("weights")
        return dict(zip(engine.names, engine.weights.tolist(), strict=True))

    @property
    def hedge_loss(self) -> float:
        """H, the faded sum of ``sum_i theta_i [f_i > 0]`` over gated comparisons (MATHS 10)."""
        return float(self._engine.hedge_loss) if self._engine else 0.0

    @property
    def hedge_loss_bound(self) -> float:
        """An upper bound of ``hedge_loss`` (MATHS 10).

        It is infinite if ``beta`` is 1, and after ``beta`` or ``memory`` was changed, until what came before has faded.
        """
        engine: HedgeEngine | None = self._engine
        if engine is not None and not engine.weighs_by(math.log(self.beta), self._keep):
            return math.inf
        return hedge_bound(engine.fewest_mistakes if engine else 0.0, self.beta, len(self.dims))


def hedge_bound(fewest: float, beta: float, modalities: int) -> float:
    """Upper bound of Hedge's own faded loss: ``(ln(1/beta) fewest + ln m) / (1 - beta)``; infinite if beta is 1.

    Parameters
    ----------
    fewest
        The smallest of the modalities' faded sums of mistakes, ``min_i sum_t rho^(T-t) z_i``.
    """
    return (-math.log(beta) * fewest + math.log(modalities)) / (1 - beta) if beta < 1 else math.inf
