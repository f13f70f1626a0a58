"""Slow literal twin of DCA: one event at a time, float64, the metric as the closed form W V (1 - 1/b)+ V' W."""

from __future__ import annotations

import math

import numpy as np


def root_inverse(S):
    """S^(-1/2) of a positive definite matrix."""
    values, vectors = np.linalg.eigh(S)
    return vectors @ np.diag(values**-0.5) @ vectors.T


def closed_form(S, T):
    """W V (1 - 1/b)+ V' W with W = S^(-1/2) and W T W = V diag(b) V'."""
    W = root_inverse(S)
    b, V = np.linalg.eigh(W @ T @ W)
    gain = np.array([max(0.0, 1 - 1 / value) if value > 0 else 0.0 for value in b])
    return W @ V @ np.diag(gain) @ V.T @ W


def learned(N, n, effective, variances):
    """M (d, d), up to scale, of the sums of near pairs; None if no direction is left."""
    d = len(variances)
    added = min(0.8 * math.sqrt(d / effective), 3.0) * np.trace(N / n) / d
    seen = [i for i in range(d) if variances[i] > 0.3 * added]
    if added == 0 or not seen:
        return None
    M = np.zeros((d, d))
    S = N[np.ix_(seen, seen)] / n + added * np.eye(len(seen))
    M[np.ix_(seen, seen)] = closed_form(S, np.diag([variances[i] for i in seen]))
    return M if np.trace(M) > 1e-12 else None


def distance(p, q, M):
    """|unit(A p) - unit(A q)|^2 with A'A = M; what has no length is at distance 1 from what has."""
    pp, qq = p @ M @ p, q @ M @ q
    cosine = p @ M @ q / math.sqrt(pp * qq) if pp > 0 and qq > 0 else 0.0
    return float(pp > 0) + float(qq > 0) - 2 * cosine


def following(version):
    """The next version at which the metric is made again."""
    return max(version + 1, math.ceil(round(version * (1.07 if version < 1000 else 1.2), 6)))


def dca(rows, items, variances, memory):
    """Scores of triplets, N, the weights' sum; of what is served at the end, M and the share of plain coordinates."""
    d, keep = items.shape[1], 1 - 1 / memory if memory else 1.0
    N, n, squares, M, share, due, scores = np.zeros((d, d)), 0.0, 0.0, None, 1.0, 1, []
    for version, (q, r, s) in enumerate(rows, 1):
        near, far = (
            share * distance(items[q], items[other], np.eye(d))
            + (0.0 if M is None else (1 - share) * distance(items[q], items[other], M))
            for other in (r, s)
        )
        scores.append(near - far)
        z = items[q] - items[r]
        N, n, squares = keep * N + np.outer(z, z) / 2, keep * n + 1, keep**2 * squares + 1
        if version == due:
            M, share = served(N, n, squares, variances)
            due = min(following(version), version + max(1, memory // 10)) if memory else following(version)
    return np.array(scores), N, n, *served(N, n, squares, variances)


def served(N, n, squares, variances):
    """M, None if there is none, and the share of plain coordinates."""
    M = learned(N, n, n**2 / squares, variances)
    share = 5 / (5 + n)
    return M, 1.0 if M is None else share if share >= 0.005 else 0.0
