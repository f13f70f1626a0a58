"""Learners of one weight a coordinate as their papers write them: one comparison at a time, float64."""

from __future__ import annotations

import numpy as np


def stepped(w, v, margin, *, eta, lam, centre, exact):
    """``w - eta lam (w - centre) - rate [w.v + margin > 0] v``, the rates capped if ``exact``."""
    loss = w @ v + margin
    rate = eta if loss > 0 and v.any() else 0.0
    shrink = eta * lam
    if exact:
        rate, shrink = min(rate, loss / (v @ v)) if rate else 0.0, min(shrink, 1.0)
    return w - shrink * (w - centre) - rate * v


def diagonal(rows, margins, x, w, *, group=None, regulariser="variance", **options):
    """RANK Eq. 11 or LAW Eq. 2.10 on features side by side; answers (weights of the coordinates, scores, updates)."""
    group = np.arange(len(w)) if group is None else np.unique(group, return_inverse=True)[1]
    fold = np.eye(group.max() + 1)[group].T  # (G, N)
    w = (fold @ w) / fold.sum(axis=1)
    scores, updates = [], 0
    for (i, j, k, m), margin in zip(rows, margins, strict=True):
        v = fold @ ((x[i] - x[j]) ** 2 - (x[k] - x[m]) ** 2)
        scores.append(w @ v)
        updates += w @ v + margin > 0
        centre = w.mean() if regulariser == "variance" else 0.0
        w = np.maximum(0, stepped(w, v, margin, centre=centre, **options))
    return w[group], np.array(scores), updates


def signed(rows, margins, x, w, **options):
    """LAW 2.4: a vector of weights that may be negative; answers (w, scores, updates)."""
    scores, updates = [], 0
    for (i, j, k, m), margin in zip(rows, margins, strict=True):
        v = (x[i] - x[j]) - (x[k] - x[m])
        scores.append(w @ v)
        updates += w @ v + margin > 0
        w = stepped(w, v, margin, centre=0.0, **options)
    return w, np.array(scores), updates
