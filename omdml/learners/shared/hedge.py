"""The certificate of exponential weights that forget (MATHS 10)."""

from __future__ import annotations

import math


def hedge_bound(fewest: float, beta: float, modalities: int) -> float:
    """What Hedge's own faded loss can at most be: ``(ln(1/beta) fewest + ln m) / (1 - beta)``; infinite at beta 1.

    Parameters
    ----------
    fewest
        The smallest of the modalities' faded sums of mistakes, ``min_i sum_t rho^(T-t) z_i``.
    """
    return (-math.log(beta) * fewest + math.log(modalities)) / (1 - beta) if beta < 1 else math.inf
