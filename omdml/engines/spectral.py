"""Keep matrices positive semi-definite without a dense eigendecomposition per update (MATHS 3; LAW A.3).

Within a block a matrix is ``M - sum_s c_s x_s x_s'``, with c = 1 or -1. An update subtracts one more term ``y y'`` from
a positive semi-definite matrix, so at most one eigenvalue becomes negative. Three ways to deal with it are tried in
turn, the cheapest first:

- *Bound* the lowest eigenvalue. The walk keeps a lower bound, which falls at each step (:mod:`omdml.kernels.full`).
  While it stays above 0, nothing in this file is called.
- *Certify* that no eigenvalue is negative. With ``M - delta I = L L'`` (Cholesky) and ``v = L^-1 x``, all eigenvalues
  lie above delta if ``I - sum_s c_s v_s v_s'`` is positive definite. One factorisation serves a whole block.
- *Cut* the negative eigenvalue. Let B be the matrix without the last term, and ``phi(z) = y' (B - z)^-1 y`` for z < 0.
  phi rises with z, and the negative eigenvalue is the z at which phi is 1. Newton steps on 1/phi approach it from the
  right, quadratically. If phi is below 1 close to zero, no eigenvalue is negative. In the eigenbasis of M, a resolvent
  costs a small linear system, so one eigendecomposition serves a whole block.

Up to 160 dimensions, LAPACK computes the lowest eigenvalue of the current matrix faster than the last two ways.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, qr, solve_triangular
from scipy.linalg.lapack import dsyevr

Array = NDArray[Any]
# Up to this many dimensions, LAPACK computes the lowest eigenvalue of the current matrix instead; see above.
DIRECT = 160
# The most Newton steps. Five or six are usual.
STEPS = 60
# Newton steps end when one is smaller than this share of the eigenvalue.
SETTLED = 1e-14
# Eigenvalues below this share of the largest are handled apart; see ``Resolvent``.
LOW = 1e-3
# An eigenvalue this much closer to 0 than the largest counts as 0.
NEAR = {"float32": 1e-6, "float64": 1e-12}
# A floor below this share of a diagonal entry is not worth a certificate.
LEAST = 1e-5
# Slightly less than 1, so that a matrix on the edge is not certified.
SURE = 1.0 - 1e-9
# In units of rounding: when a block ends, eigenvalues below minus this are cut away.
NOISE = 16


class BlockSpectrum:
    """What is known about a matrix M (d, d) while a block of rank-one terms is open.

    Nothing here is state: computed again from the same M and the same terms, it gives the same bytes.
    """

    def __init__(self, M: Array) -> None:
        self.M = M.astype(np.float64)
        self.near = NEAR[M.dtype.name]
        # M with the first ``_included`` terms, if LAPACK searches it directly.
        self.current = self.M.copy() if len(M) <= DIRECT else None
        self._included = 0
        self._basis: tuple[Array, Array] | None = None
        self._shift: float | None = None
        self._factor: Array = self.M
        # The terms in the eigenbasis.
        self._turned: list[Array] = []
        # The inverse of the factor times each term.
        self._solved: list[Array] = []

    @property
    def basis(self) -> tuple[Array, Array]:
        """Eigenvalues of M, rising, and their vectors as rows."""
        if self._basis is None:
            values, vectors = np.linalg.eigh(self.M)
            self._basis = values, np.ascontiguousarray(vectors.T)
        return self._basis

    def lowest(self, X: Array, c: Array, hint: float) -> tuple[float, Array, float]:
        """The lowest eigenvalue of M with these terms, if it is negative.

        Returns three things: the negative eigenvalue, or a floor (at least 0) below which no eigenvalue lies; the unit
        eigenvector (d,) of the negative eigenvalue; and the floor to try next time.

        Parameters
        ----------
        X, c : (m, d), (m,)
            The terms, newest last. Without the newest one the matrix must be positive semi-definite.
        hint
            The floor to try.
        """
        if self.current is not None:
            return self._directly(self.current, X, c)
        floor, hint = self._certified(X, c, hint)
        if floor > 0.0:
            return floor, X[-1], hint
        value, vector = self._negative(X, c)
        return value, vector, 0.0 if value < 0.0 else 0.5 * float(self.basis[0][0])

    def _directly(self, current: Array, X: Array, c: Array) -> tuple[float, Array, float]:
        """As :meth:`lowest`, by LAPACK. ``current``, which is M with the earlier terms, gets the new ones."""
        for row, sign in zip(X[self._included :].astype(np.float64), c[self._included :], strict=True):
            current -= sign * np.outer(row, row)
        self._included = len(X)
        values, vectors, *_ = dsyevr(current, range="I", il=1, iu=1)
        value = float(values[0])
        return (0.0 if abs(value) < self.near * np.trace(current) else value), vectors[:, 0], 0.0

    def _certified(self, X: Array, c: Array, hint: float) -> tuple[float, float]:
        """A floor below which no eigenvalue lies, and the floor to try next time.

        The hint is halved until it holds. The floor is 0, which certifies nothing, if the hint becomes too small.
        """
        while hint > LEAST * abs(self.M[0, 0]):
            if self._factored(hint):
                for row in X[len(self._solved) :]:
                    solved = solve_triangular(self._factor, row.astype(np.float64), lower=True, check_finite=False)
                    self._solved.append(solved)
                if stays_above(np.array(self._solved), -c.astype(np.float64)):
                    return hint, hint
            hint *= 0.5
        return 0.0, hint

    def _factored(self, shift: float) -> bool:
        """Factor ``M - shift I``, unless that was done last; False if it is not positive definite."""
        if self._shift != shift:
            self._solved, self._shift = [], None
            try:
                self._factor = cholesky(self.M - shift * np.eye(len(self.M)), lower=True, check_finite=False)
            except LinAlgError:
                return False
            self._shift = shift
        return True

    def _negative(self, X: Array, c: Array) -> tuple[float, Array]:
        """The negative eigenvalue that the newest term caused, or 0 if there is none, and its unit eigenvector (d,)."""
        values, rows = self.basis
        # Rows are multiplied one by one, because the bytes of a row must not depend on the other rows.
        for row in X[len(self._turned) :]:
            self._turned.append(rows @ row.astype(np.float64))
        Y = np.array(self._turned[: len(X)])
        near = self.near * (values[-1] + Y[-1] @ Y[-1])
        low, vector = negative_eigenpair(values, Y[:-1], -c[:-1].astype(np.float64), Y[-1], near)
        return low, vector @ rows


def stays_above(V: Array, g: Array) -> bool:
    """Whether ``I + sum_s g_s v_s v_s'`` is safely positive definite, for rows v_s (m, d) and g (m,).

    It is computed in the space that the rows span.
    """
    R: Array = np.asarray(np.linalg.qr(V.T, mode="r"))
    try:
        cholesky((R * g) @ R.T + SURE * np.eye(len(R)), lower=True, check_finite=False)
    except LinAlgError:
        return False
    return True


class Resolvent:
    """``(B - z)^-1 y`` for a B that is ``diag(lam) + sum_s g_s Y_s Y_s'``, positive semi-definite.

    The terms may have raised eigenvalues that are close to 0 in ``lam``. Dividing by ``lam - z`` would lose all digits
    of that, so the low eigenvalues are kept as coordinates of a small dense system. If there are too many of them, only
    the zeros are kept apart, and only the part of their space that the terms reach.

    Parameters
    ----------
    lam : (d,)
        Rising. Eigenvalues below ``near`` count as 0.
    Y, g, y : (m, d), (m,), (d,)
    """

    def __init__(self, lam: Array, Y: Array, g: Array, y: Array, near: float) -> None:
        count = int(np.searchsorted(lam, LOW * lam[-1]))
        many = count > 2 * len(g) + 2
        if many:
            count = int(np.searchsorted(lam, near))
        reached = np.concatenate([Y[:, :count], y[None, :count]]).T
        self.basis = qr(reached, mode="economic")[0] if many and count > len(g) + 1 else np.eye(count)
        self.low = np.zeros(self.basis.shape[1]) if many else np.maximum(lam[:count], 0.0)
        self.Z, self.w = Y[:, :count] @ self.basis, y[:count] @ self.basis
        self.lam, self.Y, self.y, self.g = lam[count:], np.ascontiguousarray(Y[:, count:]), y[count:], g

    def solve(self, z: float) -> tuple[Array, Array]:
        """``(B - z)^-1 y`` at z < 0: its low coordinates and the others, refined once.

        NaN if rounding makes ``B - z`` singular.
        """
        q = len(self.low)
        inverse = 1.0 / (self.lam - z)
        scaled = self.Y * inverse
        g = self.g[:, None]
        # In the low coordinates u, and in t = g (Z u + Y x).
        system = np.block([
            [np.diag(self.low - z), self.Z.T],
            [-g * self.Z, np.eye(len(g)) + g * (scaled @ self.Y.T)],
        ])  # fmt: skip
        u, x = np.zeros(q), np.zeros(len(self.y))
        try:
            inverted = np.linalg.inv(system)
        except LinAlgError:
            return np.full(q, np.nan), x
        for _ in range(2):
            t = self.g * (self.Z @ u + self.Y @ x)
            residual = self.y - (self.lam - z) * x - t @ self.Y
            right = np.concatenate([self.w - (self.low - z) * u - t @ self.Z, self.g * (scaled @ residual)])
            correction = inverted @ right
            u = u + correction[:q]
            x = x + inverse * residual - correction[q:] @ scaled
        return u, x

    def phi(self, u: Array, x: Array) -> float:
        """``y' (B - z)^-1 y``, from the coordinates that :meth:`solve` returned for z."""
        return float(self.w @ u + self.y @ x)


def negative_eigenpair(lam: Array, Y: Array, g: Array, y: Array, near: float) -> tuple[float, Array]:
    """The one negative eigenvalue of ``diag(lam) + sum_s g_s Y_s Y_s' - y y'``, and its unit vector (d,).

    Without ``- y y'`` the matrix must be positive semi-definite. Returns 0 if no eigenvalue lies below ``-near``. The
    parameters are those of :class:`Resolvent`.
    """
    resolvent = Resolvent(lam, Y, g, y, near)
    z = -near
    u, x = resolvent.solve(z)
    # Rounding may leave B an eigenvalue in (z, 0). Then the search starts further left.
    while not resolvent.phi(u, x) >= 0.0 and np.isfinite(z):
        z *= 2.0
        u, x = resolvent.solve(z)
    phi = resolvent.phi(u, x)
    if not phi > 1.0:
        return 0.0, y
    for _ in range(STEPS):
        step = phi * (phi - 1.0) / (u @ u + x @ x)
        further = resolvent.solve(z - step)
        phi = resolvent.phi(*further)
        if not np.isfinite(phi):
            break
        z, (u, x) = z - step, further
        if step <= SETTLED * -z or not phi > 1.0 + SETTLED:
            break
    vector = np.concatenate([resolvent.basis @ u, x])
    return z, vector / np.sqrt(vector @ vector)


def clip(M: Array, values: Array, rows: Array, below: float) -> int:
    """Raise the eigenvalues of M that lie under ``below`` (at most 0) to 0, and return how many there were.

    Parameters
    ----------
    M : (d, d)
        Changed in place; stays symmetric to the bit.
    values, rows : (d,), (d, d)
        Its eigenvalues, rising, and their vectors as rows.
    """
    count = int(np.searchsorted(values, below))
    # If more than half are negative, it is cheaper to add up the others.
    cut = 2 * count <= len(values)
    if not cut:
        M[:] = 0.0
    added = slice(0, count) if cut else slice(count, None)
    add_outer(M, np.abs(values[added]), rows[added])
    return count


def add_outer(M: Array, values: Array, rows: Array) -> None:
    """``M += sum_k values_k rows_k rows_k'``, in place and symmetric to the bit: (d, d), (k,) at least 0, (k, d)."""
    for row in np.sqrt(values)[:, None] * rows:
        M += np.outer(row, row)
