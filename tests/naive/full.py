"""Slow literal twins of the full-matrix learners: one event, one dense eigendecomposition at a time, float64."""

from __future__ import annotations

import math

import numpy as np


def psd(M):
    """The nearest positive semi-definite matrix (LAW A.3)."""
    values, vectors = np.linalg.eigh(M)
    return (vectors * np.maximum(values, 0)) @ vectors.T


class Ambiguous(Exception):
    """The k smallest eigenvalues are not set apart from the rest: any vectors would do."""


def fantope(M, k):
    """The projector on the eigenvectors of the k smallest eigenvalues."""
    values, vectors = np.linalg.eigh(M)
    if values[k] - values[k - 1] < 1e-6 * values[-1]:
        raise Ambiguous
    vectors = vectors[:, :k]
    return vectors @ vectors.T


def differences(rows, features):
    """Near and far difference of each comparison, a list of modalities each."""
    for row in rows:
        i, j, k, l = row if len(row) == 4 else (row[0], row[1], row[0], row[2])
        yield [(x[i] - x[j], x[k] - x[l]) for x in features.values()]


def omdml(rows, features, M, margins, *, C, beta, memory, gamma, mu=0.0, k=0, trace=0.0):
    """OMDML, Algorithm 1, with the memory of MATHS 2 (c); answers (M, theta, mistakes, updates)."""
    names, M = list(M), [matrix.copy() for matrix in M.values()]
    log_weights, mistakes, updates = np.zeros(len(M)), 0, 0
    keep = 1 - 1 / memory if memory else 1.0
    for pairs, margin in zip(differences(rows, features), margins, strict=True):
        theta = np.exp(log_weights) / np.exp(log_weights).sum()
        f = np.array([a @ m @ a - b @ m @ b for m, (a, b) in zip(M, pairs, strict=True)])
        mistakes += theta @ f > 0
        if theta @ f + gamma * margin <= 0:
            continue
        updates += 1
        log_weights = keep * (log_weights + math.log(beta) * (f > 0))
        for i, (a, b) in enumerate(pairs):
            V = np.outer(a, a) - np.outer(b, b)
            if f[i] + margin > 0 and (V * V).sum() > 0:
                tau = min(C, (f[i] + margin) / (V * V).sum())
                F = fantope(M[i], k) if mu else 0.0
                M[i] = psd(M[i] - tau * (mu * F + trace * np.eye(len(a)) + V))
    theta = np.exp(log_weights) / np.exp(log_weights).sum()
    return dict(zip(names, M, strict=True)), theta, mistakes, updates


def qwise(rows, features, M, margins, *, eta, mu=0.0, k=0, trace=0.0, exact=True):
    """LAW Algorithms 1 and 2, one step a comparison; answers (M, mistakes, updates)."""
    names, M = list(M), [matrix.copy() for matrix in M.values()]
    mistakes = updates = 0
    for pairs, margin in zip(differences(rows, features), margins, strict=True):
        V = [np.outer(a, a) - np.outer(b, b) for a, b in pairs]
        f = sum((m * v).sum() for m, v in zip(M, V, strict=True))
        mistakes += f > 0
        norm = sum((v * v).sum() for v in V)
        if f + margin > 0:
            updates += 1
            rate = (min(eta, (f + margin) / norm) if norm else 0.0) if exact else eta
            regularised = [(mu * fantope(m, k) if mu else 0.0) + trace * np.eye(len(m)) for m in M]
            M = [psd(m - rate * (r + v)) for m, r, v in zip(M, regularised, V, strict=True)]
    return dict(zip(names, M, strict=True)), mistakes, updates
