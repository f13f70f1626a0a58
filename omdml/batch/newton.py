"""Vectors from a log: Newton steps on the Huber loss (LAW Algorithm 4, Appendix B), brought to the optimum."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve

from omdml.batch.contrasts import Contrasts
from omdml.blas import one_blas_thread
from omdml.learners.shared.base import Array
from omdml.learners.shared.checks import expect, number

ROUNDS = 500
HALVINGS = 60
# The share of the promised descent that a step must bring.
ARMIJO = 1e-4
# Weights closer to 0 than this share of the largest may be held there.
NEAR = 1e-3


def fit_vector(
    rows: ArrayLike,
    features: Mapping[str, Array],
    margin: ArrayLike = 1.0,
    lam: float = 1.0,
    signed: bool = False,
    h: float = 0.05,
    group: Array | None = None,
    tol: float = 1e-9,
) -> dict[str, Array]:
    """One weight a coordinate that minimises a regularised Huber loss over a whole log (Law 2015, Eq. 2.10 and B.2).

        min over w of  lam/2 |w|^2 + sum_q L(w . v_q),    w >= 0 unless ``signed``

    a and b being the differences of the near and the far pair of comparison q, ``v_q = b o b - a o a``; or ``b - a``
    where ``signed``. ``lam`` is ``1 / C_Q``; pairs with a threshold have no part, so its b stays out. L bends over a
    width of 2h: with ``u = margin + h - t``, or ``margin - t`` if the margin is 0 or less (Eq. B.3 and B.4),

        L(t) = 0 for u <= 0,    u^2 / 4h up to u = 2h,    u - h beyond.

    Departures: the thesis takes whole Newton steps and cuts what they make negative. Here steps are halved until the
    objective falls (Armijo), and for ``w >= 0`` weights at 0 that want to go below are held there while Newton steps
    move the others (two-metric projection, Bertsekas 1982). The gap to the dual problem says when to end.

    Parameters
    ----------
    rows : (T, 4) or (T, 3)
        Row numbers of near pair and far pair; or of query, relevant, irrelevant.
    features
        Matrices (n, d_i) a modality.
    margin : scalar or (T,)
    lam
        Weight of the regulariser, > 0.
    signed
        Whether D is linear in the difference, and w free of sign.
    h
        Half the width of the bend, > 0; the thesis: 0.05.
    group : (sum d_i,)
        Number of the weight that each coordinate shares, from 0 on; None: its own. w counts a shared weight once.
    tol
        How far above the optimum the objective may be, as a share of it.

    Returns
    -------
    w_i (d_i,), float64: an ``init`` for Diagonal (Frobenius), or Signed.

    Raises
    ------
    FeedbackError, StartError
        As :meth:`Contrasts.of` does.
    ParameterError
        A number out of range.
    """
    for name, value in (("lam", lam), ("h", h), ("tol", tol)):
        expect(number(value) and value > 0, name, value, "a number above 0")
    contrasts = Contrasts.of(rows, features, margin)
    vectors = contrasts.vectors(np.positive if signed else np.square, group)
    centre = np.where(contrasts.margin > 0, contrasts.margin, contrasts.margin - h)
    with one_blas_thread():
        return contrasts.split(solve(Huber(vectors, centre, float(lam), float(h)), not signed, tol), group)


class At(NamedTuple):
    """The problem at one w."""

    w: Array
    value: float
    # Minus the derivative of each loss, in [0, 1]: a point of the dual problem.
    slope: Array  # (T,)
    gradient: Array


class Huber(NamedTuple):
    """The problem of :func:`fit_vector`."""

    vectors: Array  # (T, G)
    # Centre of each bend.
    centre: Array  # (T,)
    lam: float
    h: float

    def at(self, w: Array) -> At:
        """Value and gradient."""
        u = self.centre + self.h - self.vectors @ w
        slope = np.clip(u / (2 * self.h), 0.0, 1.0)
        loss = slope * u - self.h * slope**2
        value = self.lam / 2 * float(w @ w) + float(loss.sum())
        return At(w, value, slope, self.lam * w - self.vectors.T @ slope)

    def gap(self, at: At, positive: bool) -> float:
        """How far the value can at most be above the optimum, by the dual problem."""
        w = self.vectors.T @ at.slope / self.lam
        w = np.maximum(w, 0.0) if positive else w
        raised = float(at.slope @ (self.centre + self.h)) - self.h * float(at.slope @ at.slope)
        return at.value - (raised - self.lam / 2 * float(w @ w))

    def step(self, at: At, free: Array) -> Array:
        """Newton's direction in the free weights, the gradient's in the others."""
        bent = self.vectors[(at.slope > 0) & (at.slope < 1)]
        inside = bent[:, free]
        hessian = inside.T @ inside / (2 * self.h)
        hessian[np.diag_indices_from(hessian)] += self.lam
        curvature = self.lam + np.einsum("ij,ij->j", bent, bent) / (2 * self.h)
        direction = -at.gradient / curvature
        direction[free] = -cho_solve(cho_factor(hessian, lower=True), at.gradient[free])
        return direction


def solve(problem: Huber, positive: bool, tol: float) -> Array:
    """w (G,) at the optimum."""
    at = problem.at(np.zeros(problem.vectors.shape[1]))
    for _ in range(ROUNDS):
        if problem.gap(at, positive) <= tol * at.value:
            return at.w
        held = positive & (at.w <= NEAR * at.w.max()) & (at.gradient > 0)
        further = searched(problem, at, ~held, positive)
        if further is None:
            break
        at = further
    share = problem.gap(at, positive) / at.value
    if share > tol:
        warnings.warn(f"rounding ends the search {share:.3g} above the optimum, {tol:.3g} was asked for", stacklevel=3)
    return at.w


def searched(problem: Huber, at: At, free: Array, positive: bool) -> At | None:
    """The first halving of the step whose descent is good enough; None if rounding hides any."""
    direction = problem.step(at, free)
    for halving in range(HALVINGS):
        w = at.w + 0.5**halving * direction
        further = problem.at(np.maximum(w, 0.0) if positive else w)
        promised = -(0.5**halving) * float(at.gradient[free] @ direction[free])
        promised += float(at.gradient[~free] @ (at.w - further.w)[~free])
        if at.value - further.value >= ARMIJO * promised and further.value < at.value:
            return further
    return None
