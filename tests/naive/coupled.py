"""Slow literal twins of the learners of pairs: one pair at a time, float64, as CP-mtML writes them."""

from __future__ import annotations

from functools import partial

import numpy as np

REACH = 0.25


def capped(losses, length, eta):
    """The smallest rate at which a quadratic loss is zero, found on the loss itself; its minimiser; or a limit."""
    steps = np.array([0.0, 1.0, 2.0]) * eta
    kappa, slope, loss = np.polyfit(steps, [losses(rate) for rate in steps], 2)
    roots = [root.real for root in np.roots([kappa, slope, loss]) if abs(root.imag) < 1e-9 and root.real > 0]
    best = min(roots) if roots else -slope / (2 * kappa)
    return min(eta, best, REACH / length if length else eta)


def coupled(rows, signs, tasks, X, L, stacks, *, shares, eta, exact):
    """Algorithm 1 on matrices by name, of which ``stacks[t]`` are those of task t; answers (L, b, scores, updates)."""
    L, b, scores, updates = dict(L), np.ones(len(stacks)), [], 0
    for (i, j), y, t in zip(rows, signs, tasks, strict=True):
        c, names = X[i] - X[j], stacks[t]
        matrices = [L[name] for name in names]
        scores.append(y * (sum(np.sum((M @ c) ** 2) for M in matrices) - b[t]))
        if scores[-1] + 1 > 0:
            updates += 1
            rate = (
                capped(partial(coupled_loss, matrices, b[t], shares, y, c), c @ c * max(shares), eta) if exact else eta
            )
            L |= dict(zip(names, coupled_step(matrices, shares, rate * y, c), strict=True))
            b[t] += 0.1 * rate * y
    return L, b, np.array(scores), updates


def coupled_step(matrices, shares, step, c):
    """A task's matrices after a signed step."""
    return [M - share * step * np.outer(M @ c, c) for M, share in zip(matrices, shares, strict=True)]


def coupled_loss(matrices, b, shares, y, c, rate):
    """The loss after a step of this rate, before the hinge cuts it off at zero."""
    squared = sum(np.sum((M @ c) ** 2) for M in coupled_step(matrices, shares, rate * y, c))
    return 1 - y * (b + 0.1 * rate * y - squared)


def mtlmca(rows, signs, tasks, X, L, R, *, shares, eta, exact):
    """L_t = R_t' L; answers (L, R, b, scores, updates)."""
    R, b, scores, updates = list(R), np.ones(len(R)), [], 0
    for (i, j), y, t in zip(rows, signs, tasks, strict=True):
        c = X[i] - X[j]
        loss = partial(lmca_loss, L, R[t], b[t], shares[0], y, c)
        scores.append(loss(0.0) - 1)
        if loss(0.0) > 0:
            updates += 1
            p, e = L @ c, R[t].T @ L @ c
            rate = eta
            if exact:
                length = p @ p + shares[0] * (c @ c) * np.linalg.norm(R[t].T @ R[t] @ e) / max(np.linalg.norm(e), 1e-99)
                rate = min(eta, REACH / length) if length else eta
                while not 0 <= loss(rate) <= loss(0.0):
                    rate /= 2
            L, R[t] = lmca_step(L, R[t], shares[0], rate * y, c)
            b[t] += 0.1 * rate * y
    return L, R, b, np.array(scores), updates


def lmca_step(L, R, share, step, c):
    """L and R_t after a signed step."""
    p, e = L @ c, R.T @ L @ c
    return L - share * step * np.outer(R @ e, c), R - step * np.outer(p, e)


def lmca_loss(L, R, b, share, y, c, rate):
    """The loss after a step of this rate, before the hinge cuts it off at zero."""
    new_L, new_R = lmca_step(L, R, share, rate * y, c)
    return 1 - y * (b + 0.1 * rate * y - np.sum((new_R.T @ new_L @ c) ** 2))
