"""Staying positive semi-definite without a dense eigendecomposition an update (MATHS 3; LAW A.3).

Within a block a matrix is ``M - sum_s c_s x_s x_s'``, c = 1 or -1, and an update takes away one more term, ``y y'``,
from something positive semi-definite. Two ways, the cheap one first:

- *Certified.* With ``M - delta I = L L'`` (Cholesky) and ``v = L^-1 x``, all eigenvalues lie above delta where
  ``I - sum_s c_s v_s v_s'`` is positive definite. One factorisation serves a block.
- *Cut.* At most one eigenvalue turns negative. Write ``phi(z) = y' (B - z)^-1 y`` for z < 0, B being what is left
  without y: phi rises with z, and the negative eigenvalue is where it is 1. Newton steps on 1/phi from the right
  approach it from one side, quadratically; where phi is below 1 next to zero, there is none. In the eigenbasis of M a
  resolvent costs a small linear system, so one eigendecomposition serves a block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, qr, solve_triangular
from scipy.linalg.lapack import dsyevr

Array = NDArray[Any]
# Up to so many dimensions LAPACK finds the lowest eigenvalue of the present matrix sooner.
DIRECT = 160
# At most so many Newton steps. Five or six are usual.
STEPS = 60
SETTLED = 1e-14
# Eigenvalues below this share of the largest stand apart.
LOW = 1e-3
# An eigenvalue this much closer to 0 than the largest counts as 0.
NEAR = {"float32": 1e-6, "float64": 1e-12}
# Share of a diagonal entry below which an eigenvalue is not certified to lie.
LEAST = 1e-5
SURE = 1.0 - 1e-9
# In units of rounding. Negative eigenvalues of a block's first matrix beyond it are cut away.
NOISE = 16


class BlockSpectrum:
    """What is known of one matrix M (d, d) while a block of rank-one terms stands beside it.

    Nothing here is state: made anew from the same M and the same terms it gives the same bytes.
    """

    def __init__(self, M: Array) -> None:
        self.M = M.astype(np.float64)
        self.near = NEAR[M.dtype.name]
        self.now = self.M.copy() if len(M) <= DIRECT else None
        # How many terms ``now`` has taken in.
        self._taken = 0
        self._basis: tuple[Array, Array] | None = None
        self._shift: float | None = None
        self._factor: Array = self.M
        # The terms in the eigenbasis.
        self._turned: list[Array] = []
        # The terms times the inverse of the factor.
        self._solved: list[Array] = []

    @property
    def basis(self) -> tuple[Array, Array]:
        """Eigenvalues, rising, and their vectors as rows."""
        if self._basis is None:
            values, vectors = np.linalg.eigh(self.M)
            self._basis = values, np.ascontiguousarray(vectors.T)
        return self._basis

    def lowest(self, X: Array, c: Array, hint: float) -> tuple[float, Array, float]:
        """The lowest eigenvalue if it is negative, or else a floor that none lies below; the unit vector (d,) of a
        negative one; and the floor to try next time.

        Parameters
        ----------
        X, c : (m, d), (m,)
            The terms, the newest last; without the newest, the matrix is positive semi-definite.
        hint
            The floor to try.
        """
        if self.now is not None:
            return self._directly(self.now, X, c)
        floor, hint = self._certified(X, c, hint)
        if floor > 0.0:
            return floor, X[-1], hint
        value, vector = self._negative(X, c)
        return value, vector, 0.0 if value < 0.0 else 0.5 * float(self.basis[0][0])

    def _directly(self, now: Array, X: Array, c: Array) -> tuple[float, Array, float]:
        for row, sign in zip(X[self._taken :].astype(np.float64), c[self._taken :], strict=True):
            now -= sign * np.outer(row, row)
        self._taken = len(X)
        values, vectors, *_ = dsyevr(now, range="I", il=1, iu=1)
        value = float(values[0])
        return (0.0 if abs(value) < self.near * np.trace(now) else value), vectors[:, 0], 0.0

    def _certified(self, X: Array, c: Array, hint: float) -> tuple[float, float]:
        """A floor that no eigenvalue lies below, and what to try next time; 0 if there may be none above 0.

        A hint is halved until it holds, or is too small to matter.
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
        if self._shift != shift:
            self._solved, self._shift = [], None
            try:
                self._factor = cholesky(self.M - shift * np.eye(len(self.M)), lower=True, check_finite=False)
            except LinAlgError:
                return False
            self._shift = shift
        return True

    def _negative(self, X: Array, c: Array) -> tuple[float, Array]:
        """The negative eigenvalue that the newest of these terms left, 0 if there is none, and its unit vector."""
        values, rows = self.basis
        # They are turned one by one, because a row's bytes must not depend on the others.
        for row in X[len(self._turned) :]:
            self._turned.append(rows @ row.astype(np.float64))
        Y = np.array(self._turned[: len(X)])
        near = self.near * (values[-1] + Y[-1] @ Y[-1])
        low, vector = negative_eigenpair(values, Y[:-1], -c[:-1].astype(np.float64), Y[-1], near)
        return low, vector @ rows


def stays_above(V: Array, g: Array) -> bool:
    """Whether ``I + sum_s g_s v_s v_s'`` is safely positive definite, by its part in the rows' own space."""
    R: Array = np.asarray(np.linalg.qr(V.T, mode="r"))
    try:
        cholesky((R * g) @ R.T + SURE * np.eye(len(R)), lower=True, check_finite=False)
    except LinAlgError:
        return False
    return True


class Resolvent:
    """``(B - z)^-1 y`` for a B that is ``diag(lam) + sum_s g_s Y_s Y_s'``, positive semi-definite.

    Low eigenvalues stand apart because dividing by ``lam - z`` would lose the digits of what the terms have put there
    since. Where there are too many to keep each, those are the zeros alone, as far as the terms reach into their space.

    Parameters
    ----------
    lam : (d,)
        Rising; those under ``near`` count as 0.
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

    def at(self, z: float) -> tuple[Array, Array]:
        """Low and other coordinates, once refined, at z < 0; NaN if rounding makes ``B - z`` singular."""
        q = len(self.low)
        inverse = 1.0 / (self.lam - z)
        scaled = self.Y * inverse
        g = self.g[:, None]
        system = np.block([
            [np.diag(self.low - z), self.Z.T],
            [-g * self.Z, np.eye(len(g)) + g * (scaled @ self.Y.T)],
        ])  # fmt: skip  # in the low coordinates u, and in t = g (Z u + Y x)
        u, x = np.zeros(q), np.zeros(len(self.y))
        try:
            inverted = np.linalg.inv(system)
        except LinAlgError:
            return np.full(q, np.nan), x
        for _ in range(2):
            t = self.g * (self.Z @ u + self.Y @ x)
            residual = self.y - (self.lam - z) * x - t @ self.Y
            right = np.concatenate([self.w - (self.low - z) * u - t @ self.Z, self.g * (scaled @ residual)])
            found = inverted @ right
            u = u + found[:q]
            x = x + inverse * residual - found[q:] @ scaled
        return u, x

    def phi(self, u: Array, x: Array) -> float:
        """``y' (B - z)^-1 y`` of these coordinates."""
        return float(self.w @ u + self.y @ x)


def negative_eigenpair(lam: Array, Y: Array, g: Array, y: Array, near: float) -> tuple[float, Array]:
    """The one negative eigenvalue of ``diag(lam) + sum_s g_s Y_s Y_s' - y y'``, and its unit vector (d,).

    Without ``- y y'`` the matrix must be positive semi-definite. Answers 0 if there is none below ``-near``; the
    parameters are those of :class:`Resolvent`.
    """
    resolvent = Resolvent(lam, Y, g, y, near)
    z = -near
    u, x = resolvent.at(z)
    # If rounding left B an eigenvalue in (z, 0), the search goes on beyond it.
    while not resolvent.phi(u, x) >= 0.0 and np.isfinite(z):
        z *= 2.0
        u, x = resolvent.at(z)
    phi = resolvent.phi(u, x)
    if not phi > 1.0:
        return 0.0, y
    for _ in range(STEPS):
        step = phi * (phi - 1.0) / (u @ u + x @ x)
        further = resolvent.at(z - step)
        phi = resolvent.phi(*further)
        if not np.isfinite(phi):
            break
        z, (u, x) = z - step, further
        if step <= SETTLED * -z or not phi > 1.0 + SETTLED:
            break
    vector = np.concatenate([resolvent.basis @ u, x])
    return z, vector / np.sqrt(vector @ vector)


def clip(M: Array, values: Array, rows: Array, below: float) -> int:
    """Raise the eigenvalues of M under ``below`` (at most 0) to 0; answers how many there were.

    Parameters
    ----------
    M : (d, d)
        Changed in place; stays symmetric to the bit.
    values, rows : (d,), (d, d)
        Its eigenvalues, rising, and their vectors as rows.
    """
    count = int(np.searchsorted(values, below))
    # Otherwise it is cheaper to add up what stays.
    cut = 2 * count <= len(values)
    if not cut:
        M[:] = 0.0
    kept = slice(0, count) if cut else slice(count, None)
    add_outer(M, np.abs(values[kept]), rows[kept])
    return count


def add_outer(M: Array, values: Array, rows: Array) -> None:
    """``M += sum_k values_k rows_k rows_k'``, in place and symmetric to the bit: (d, d), (k,) at least 0, (k, d)."""
    for row in np.sqrt(values)[:, None] * rows:
        M += np.outer(row, row)
