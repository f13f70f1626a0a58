"""Exponential weights in log space, with memory, and their running certificate (MATHS 2 (c), 10)."""

from __future__ import annotations

import math

from numba import njit

from omdml.kernels import Array


@njit(cache=True)
def softmax(log_weights: Array, weights: Array) -> None:
    """Write ``exp(log_weights)``, scaled to the sum 1, to ``weights`` (m,)."""
    top = log_weights.max()
    total = 0.0
    for i in range(log_weights.shape[0]):
        weights[i] = math.exp(log_weights[i] - top)
        total += weights[i]
    weights /= total


@njit(cache=True)
def discount(f: Array, log_beta: float, keep: float, log_weights: Array, weights: Array, losses: Array) -> None:
    """Learn from one gated comparison: modalities with ``f_i > 0`` lose weight.

    Every loss fades by ``keep = 1 - 1/memory``. ``log_weights`` (m,), ``weights`` (m,) and ``losses`` (m + 1,) change
    in place. ``losses`` holds the faded sums of each modality's mistakes and, last, of Hedge's own loss
    ``sum_i theta_i z_i``.
    """
    m = f.shape[0]
    mixed = 0.0
    for i in range(m):
        wrong = 1.0 if f[i] > 0.0 else 0.0
        mixed += weights[i] * wrong
        losses[i] = keep * losses[i] + wrong
        log_weights[i] = keep * (log_weights[i] + wrong * log_beta)
    losses[m] = keep * losses[m] + mixed
    softmax(log_weights, weights)
