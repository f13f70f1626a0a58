"""Vectors from a log: Newton steps on the Huber loss (LAW Algorithm 4, Appendix B), solved to the optimum."""

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
from omdml.learners.shared.checks import expect, is_number

# The most Newton steps, and the most halvings of one.
ROUNDS = 500
HALVINGS = 60
# The share of the predicted descent that a step must achieve.
ARMIJO = 1e-4
# Weights below this share of the largest may be held at 0.
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
    """Weights of coordinates that minimise a regularised Huber loss over a whole log (Law 2015, Eq. 2.10 and B.2).

        min over w of  lam/2 |w|^2 + sum_q L(w . v_q),    w >= 0 unless ``signed``

    a and b being the differences of the near and the far pair of comparison q, ``v_q = b o b - a o a``, or ``b - a`` if
    ``signed``. ``lam`` is ``1 / C_Q``. There are no pairs with a threshold, so the thesis' b is left out. L bends over
    a width of 2h: with ``u = margin + h - t``, or ``margin - t`` if the margin is 0 or less (Eq. B.3 and B.4),

        L(t) = 0 for u <= 0,    u^2 / 4h up to u = 2h,    u - h beyond.

    Departures: the thesis takes whole Newton steps and sets negative weights to 0. Here steps are halved until the
    objective falls (Armijo). For ``w >= 0``, weights at 0 whose gradient points below 0 are held there, while Newton
    steps move the others (two-metric projection, Bertsekas 1982). The gap to the dual problem says when to stop.

    Parameters
    ----------
    rows : (T, 4) or (T, 3)
        Row numbers of near pair and far pair; or of query, relevant, irrelevant.
    features
        One matrix (n, d_i) for each modality.
    margin : scalar or (T,)
    lam
        Weight of the regulariser, > 0.
    signed
        Whether D is linear in the difference, and w may have any sign.
    h
        Half the width of the bend, > 0; the thesis: 0.05.
    group : (sum d_i,)
        Number of the weight that each coordinate shares, from 0 on; None: each has a weight of its own. w holds a
        shared weight once.
    tol
        How far above the optimum the objective may be, as a share of it.

    Returns
    -------
    w_i (d_i,), float64: an ``init`` for Diagonal (Frobenius), or Signed.

    Raises
    ------
    FeedbackError, StartError
        See :meth:`Contrasts.of`.
    ParameterError
        ``lam``, ``h`` or ``tol`` is out of range.
    """
    for name, value in (("lam", lam), ("h", h), ("tol", tol)):
        expect(is_number(value) and value > 0, name, value, "a number above 0")
    contrasts = Contrasts.of(rows, features, margin)
    vectors = contrasts.vectors(np.positive if signed else np.square, group)
    centre = np.where(contrasts.margin > 0, contrasts.margin, contrasts.margin - h)
    with one_blas_thread():
        return contrasts.split(solve(Huber(vectors, centre, float(lam), float(h)), not signed, tol), group)


class Point(NamedTuple):
    """Value and gradient of the problem at one w."""

    w: Array
    value: float
    # Minus the derivative of each loss, in [0, 1]: a point of the dual problem.
    slope: Array  # (T,)
    gradient: Array


class Huber(NamedTuple):
    """The problem of :func:`fit_vector`: a convex objective of the weights w (G,)."""

    vectors: Array  # (T, G)
    # Centre of each bend.
    centre: Array  # (T,)
    lam: float
    h: float

    def evaluate(self, w: Array) -> Point:
        """Value and gradient at w (G,)."""
        u = self.centre + self.h - self.vectors @ w
        slope = np.clip(u / (2 * self.h), 0.0, 1.0)
        loss = slope * u - self.h * slope**2
        value = self.lam / 2 * float(w @ w) + float(loss.sum())
        return Point(w, value, slope, self.lam * w - self.vectors.T @ slope)

    def gap(self, point: Point, positive: bool) -> float:
        """An upper bound of how far the value is above the optimum, by the dual problem."""
        w = self.vectors.T @ point.slope / self.lam
        w = np.maximum(w, 0.0) if positive else w
        dual = float(point.slope @ (self.centre + self.h)) - self.h * float(point.slope @ point.slope)
        return point.value - (dual - self.lam / 2 * float(w @ w))

    def step(self, point: Point, free: Array) -> Array:
        """Newton's direction in the free weights, the gradient's in the others."""
        # Only losses within the bend have a curvature.
        in_bend = self.vectors[(point.slope > 0) & (point.slope < 1)]
        of_free = in_bend[:, free]
        hessian = of_free.T @ of_free / (2 * self.h)
        hessian[np.diag_indices_from(hessian)] += self.lam
        curvature = self.lam + np.einsum("ij,ij->j", in_bend, in_bend) / (2 * self.h)
        direction = -point.gradient / curvature
        direction[free] = -cho_solve(cho_factor(hessian, lower=True), point.gradient[free])
        return direction


def solve(problem: Huber, positive: bool, tol: float) -> Array:
    """w (G,) at the optimum: Newton steps until the duality gap is at most ``tol`` of the objective."""
    point = problem.evaluate(np.zeros(problem.vectors.shape[1]))
    for _ in range(ROUNDS):
        if problem.gap(point, positive) <= tol * point.value:
            return point.w
        fixed = positive & (point.w <= NEAR * point.w.max()) & (point.gradient > 0)
        further = line_search(problem, point, ~fixed, positive)
        if further is None:
            break
        point = further
    share = problem.gap(point, positive) / point.value
    if share > tol:
        got = f"the search ended {share:.3g} above the optimum, as a share of it"
        warnings.warn(f"{got}, expected {tol:.3g} at most: rounding may hide smaller steps", stacklevel=3)
    return point.w


def line_search(problem: Huber, point: Point, free: Array, positive: bool) -> Point | None:
    """The first halving of the step that descends far enough; None if rounding hides any descent."""
    direction = problem.step(point, free)
    for halving in range(HALVINGS):
        w = point.w + 0.5**halving * direction
        further = problem.evaluate(np.maximum(w, 0.0) if positive else w)
        predicted = -(0.5**halving) * float(point.gradient[free] @ direction[free])
        predicted += float(point.gradient[~free] @ (point.w - further.w)[~free])
        if point.value - further.value >= ARMIJO * predicted and further.value < point.value:
            return further
    return None
