"""Slow literal twins of the batch problems (MATHS 6; LAW 2 and 3, RANK 3), and solvers that are not ours."""

from __future__ import annotations

import clarabel
import numpy as np

# scipy.optimize is imported only when it is first used, because every process of tests imports this file.
import scipy
import scipy.sparse as sparse


def contrasts(rows, x):
    """Near and far difference of each comparison."""
    return [(x[i] - x[j], x[k] - x[m]) for i, j, k, m in rows]


def full_objective(M, rows, x, margin, lam=0.0, trace=0.0, mu=0.0, k=0):
    """The objective of full matrices, as LAW writes it in Eq. 2.3 and 3.1."""
    total = lam / 2 * (M**2).sum() + trace * np.trace(M) + mu * np.linalg.eigvalsh(M)[:k].sum()
    for (a, b), delta in zip(contrasts(rows, x), margin, strict=True):
        total += max(0.0, delta + a @ M @ a - b @ M @ b)
    return total


def semidefinite_optimum(rows, x, margin, lam, trace):
    """The least value of :func:`full_objective` without a Fantope, by interior points in the cone."""
    d = x.shape[1]
    # The upper triangle, column by column.
    row, column = np.tril_indices(d)[0], np.tril_indices(d)[1]
    weight = np.where(row == column, 1.0, np.sqrt(2))
    vectors = np.array([(np.outer(b, b) - np.outer(a, a))[row, column] * weight for a, b in contrasts(rows, x)])
    count, size = vectors.shape
    P = sparse.block_diag([lam * sparse.eye_array(size), sparse.csc_array((count, count))])
    q = np.concatenate([trace * (row == column), np.ones(count)])
    A = sparse.vstack([
        sparse.hstack([sparse.csc_array(-vectors), -sparse.eye_array(count)]),
        sparse.hstack([sparse.csc_array((count, size)), -sparse.eye_array(count)]),
        sparse.hstack([-sparse.eye_array(size), sparse.csc_array((size, count))]),
    ])  # fmt: skip
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = 1e-10
    cones = [clarabel.NonnegativeConeT(2 * count), clarabel.PSDTriangleConeT(d)]
    right = np.concatenate([-np.asarray(margin), np.zeros(count + size)])
    upper = sparse.csc_matrix(sparse.triu(P))
    return clarabel.DefaultSolver(upper, q, sparse.csc_matrix(A), right, cones, settings).solve().obj_val


def huber(t, delta, h):
    """LAW Eq. B.3 and B.4, with another margin than 1 in place of 1; and the derivative."""
    if delta > 0:
        bent, zero, line, above = (delta + h - t) ** 2 / (4 * h), t > delta + h, t < delta - h, delta - t
        slope = -(delta + h - t) / (2 * h)
    else:
        bent, zero, line, above = (delta - t) ** 2 / (4 * h), t > delta, t < delta - 2 * h, delta - h - t
        slope = -(delta - t) / (2 * h)
    return (0.0, 0.0) if zero else (above, -1.0) if line else (bent, slope)


def vector_objective(w, rows, x, margin, lam, h, signed):
    """LAW Eq. B.2 without pairs, and its gradient."""
    total, gradient = lam / 2 * (w @ w), lam * w
    for (a, b), delta in zip(contrasts(rows, x), margin, strict=True):
        z = b - a if signed else b * b - a * a
        loss, slope = huber(w @ z, delta, h)
        total, gradient = total + loss, gradient + slope * z
    return total, gradient


def vector_optimum(rows, x, margin, lam, h, signed):
    """The least value of :func:`vector_objective`, by scipy."""
    bounds = None if signed else [(0, None)] * x.shape[1]
    options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-16, "gtol": 1e-13, "maxcor": 30}
    arguments = (rows, x, margin, lam, h, signed)
    return scipy.optimize.minimize(
        vector_objective, np.zeros(x.shape[1]), arguments, "L-BFGS-B", True, bounds=bounds, options=options
    ).fun


def ranked_objective(w, rows, x, margin, lam):
    """The objective of one vector of weights, as RANK writes it in Eq. 11."""
    total = lam / 2 * ((w - w.mean()) ** 2).sum()
    for (a, b), delta in zip(contrasts(rows, x), margin, strict=True):
        total += max(0.0, delta + w @ (a * a) - w @ (b * b))
    return total


def ranked_optimum(rows, x, margin, lam):
    """The least value of :func:`ranked_objective`, by sequential quadratic programming with slack variables."""
    d, count = x.shape[1], len(rows)
    z = np.array([b * b - a * a for a, b in contrasts(rows, x)])

    def value(v):
        centred = v[:d] - v[:d].mean()
        return lam / 2 * centred @ centred + v[d:].sum(), np.concatenate([lam * centred, np.ones(count)])

    slack = {
        "type": "ineq",
        "fun": lambda v: z @ v[:d] - margin + v[d:],
        "jac": lambda v: np.hstack([z, np.eye(count)]),
    }
    begin = np.concatenate([np.zeros(d), np.maximum(margin, 0.0)])
    bounds, options = [(0, None)] * (d + count), {"maxiter": 2000, "ftol": 1e-14}
    return scipy.optimize.minimize(
        value, begin, jac=True, method="SLSQP", bounds=bounds, constraints=[slack], options=options
    ).fun


def pairs_objective(w, pairs, x, similar, lam):
    """RANK Eq. 10; infinite if a dissimilar pair is closer than 1."""
    total = lam / 2 * (w @ w)
    for (i, j), alike in zip(pairs, similar, strict=True):
        distance = w @ (x[i] - x[j]) ** 2
        if not alike and distance < 1 - 1e-7:
            return np.inf
        total += distance if alike else 0.0
    return total


def pairs_optimum(pairs, x, similar, lam):
    """The least value of :func:`pairs_objective`, by sequential quadratic programming."""
    squares = (x[pairs[:, 0]] - x[pairs[:, 1]]) ** 2
    dissimilar, pulled = squares[~similar], squares[similar].sum(axis=0)
    apart = {"type": "ineq", "fun": lambda w: dissimilar @ w - 1, "jac": lambda w: dissimilar}

    def value(w):
        return w @ pulled + lam / 2 * w @ w, pulled + lam * w

    begin = np.ones(x.shape[1]) / dissimilar.sum(axis=1).min()
    bounds, options = [(0, None)] * x.shape[1], {"maxiter": 2000, "ftol": 1e-15}
    w = scipy.optimize.minimize(
        value, begin, jac=True, method="SLSQP", bounds=bounds, constraints=[apart], options=options
    ).x
    # It may miss a constraint by some millionths.
    return value(w / min(1.0, (dissimilar @ w).min()))[0]
