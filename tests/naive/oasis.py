"""OASIS as its paper writes it: one triplet at a time, float64."""

from __future__ import annotations

import numpy as np


def oasis(rows, features, W, *, C):
    """A matrix a modality, each from its own loss; answers (W, scores f, updates)."""
    W = {name: w.copy() for name, w in W.items()}
    scores, updates = [], 0
    for q, r, s in rows:
        closer = {name: x[q] @ W[name] @ x[r] - x[q] @ W[name] @ x[s] for name, x in features.items()}
        scores.append(-np.mean(list(closer.values())))
        violated = [name for name in W if 1 - closer[name] > 0]
        for name in violated:
            x = features[name]
            V = np.outer(x[q], x[r] - x[s])
            if V.any():
                W[name] += min(C, (1 - closer[name]) / np.sum(V * V)) * V
        updates += any(np.outer(features[name][q], features[name][r] - features[name][s]).any() for name in violated)
    return W, np.array(scores), updates
