"""Slow literal twins of the kernels: one event at a time, float64, as the papers write them."""

from __future__ import annotations

import math

import numpy as np


def exact_rate(W, a, b, eta):
    """The smallest rate at which the hinge loss is zero, found on the loss itself; or its minimiser."""
    G = 2 * (np.outer(W @ a, a) - np.outer(W @ b, b))

    def loss(rate):
        V = W - rate * G
        return np.sum((V @ a) ** 2) - np.sum((V @ b) ** 2) + 1

    slope = np.sum(G * G)
    kappa = np.sum((G @ a) ** 2) - np.sum((G @ b) ** 2)
    roots = np.roots([kappa, -slope, loss(0.0)]) if slope else np.array([])
    if not roots.size:
        return 0.0
    real = [root.real for root in np.atleast_1d(roots) if abs(root.imag) < 1e-9 * abs(root) and root.real > 0]
    return min(eta, min(real) if real else slope / (2 * kappa))


def lomdml(rows, features, W, *, eta, beta, memory, gamma, exact):
    """OMDML, Algorithm 2, with the departures of MATHS 2; answers (W, theta, mistakes, updates, certificate)."""
    W = {name: w.copy() for name, w in W.items()}
    names = list(W)
    log_weights = np.zeros(len(names))
    keep = 1 - 1 / memory if memory else 1.0
    mistakes = updates = 0
    losses, mixture = np.zeros(len(names)), 0.0
    for q, r, s in rows:
        theta = np.exp(log_weights) / np.exp(log_weights).sum()
        pairs = [(features[name][q] - features[name][r], features[name][q] - features[name][s]) for name in names]
        f = np.array(
            [np.sum((W[name] @ a) ** 2) - np.sum((W[name] @ b) ** 2) for name, (a, b) in zip(names, pairs, strict=True)]
        )
        mistakes += theta @ f > 0
        if theta @ f + gamma <= 0:
            continue
        updates += 1
        losses, mixture = keep * losses + (f > 0), keep * mixture + theta @ (f > 0)
        log_weights = keep * (log_weights + math.log(beta) * (f > 0))
        for name, (a, b), value in zip(names, pairs, f, strict=True):
            if value + 1 > 0 and (a.any() or b.any()):
                rate = exact_rate(W[name], a, b, eta) if exact else eta
                W[name] = W[name] - rate * 2 * (np.outer(W[name] @ a, a) - np.outer(W[name] @ b, b))
    theta = np.exp(log_weights) / np.exp(log_weights).sum()
    return W, theta, mistakes, updates, (mixture, losses.min())


def embedding(features, weights, matrices):
    """E(p) = concat_i sqrt(theta_i) W_i p_i of every item: MATHS 9."""
    count = len(next(iter(features.values())))
    return np.array(
        [np.concatenate([math.sqrt(weights[name]) * (W @ features[name][row]) for name, W in matrices.items()])
         for row in range(count)]
    )  # fmt: skip


def distance(p, q, weights, matrices):
    """D(p, q) = sum_i theta_i |W_i (p_i - q_i)|^2."""
    return sum(weights[name] * np.sum((W @ (p[name] - q[name])) ** 2) for name, W in matrices.items())


def start(X, rank, init):
    """Principal rows of X by falling variance, their largest entry positive; WPCA divides each by its deviation."""
    centred = X - X.mean(axis=0)
    values, vectors = np.linalg.eigh(sum(np.outer(x, x) for x in centred) / len(X))
    rows = []
    for place in np.argsort(-values)[:rank]:
        row = vectors[:, place] * np.sign(vectors[np.abs(vectors[:, place]).argmax(), place])
        rows.append(row / math.sqrt(values[place]) if init == "wpca" else row)
    return np.array(rows)


def running_means(states, block, average):
    """Means over ``average`` events of what holds after each ``block`` of them; the last one may be shorter."""
    mean, done = 0 * states[0], 0
    while done < len(states):
        taken = min(block, len(states) - done)
        done += taken
        mean = mean + min(1, taken / min(done, average)) * (states[done - 1] - mean)
    return mean


def average_precision(relevance):
    """Precision at every relevant place, averaged."""
    hits, total = 0, 0.0
    for place, relevant in enumerate(relevance, start=1):
        if relevant:
            hits += 1
            total += hits / place
    return total / max(hits, 1)
