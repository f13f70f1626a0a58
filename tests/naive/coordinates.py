"""Slow literal twin of the map of coordinates: one item, one landmark at a time, float64."""

from __future__ import annotations

import numpy as np


def similarities(x, landmarks, width):
    """exp(-|x - l|^2 / width) of each row of x and each landmark."""
    return np.array([[np.exp(-np.sum((row - landmark) ** 2) / width) for landmark in landmarks] for row in x])


def inverse_root(K):
    """K^(-1/2); it leaves out the directions along which K is zero."""
    values, vectors = np.linalg.eigh(K)
    roots = [value**-0.5 if value > 1e-10 * values[-1] else 0.0 for value in values]
    return vectors @ np.diag(roots) @ vectors.T


def scaled(columns, sample):
    """The columns minus the sample's mean, divided by the root of the sample's total variance."""
    mean = sample.mean(axis=0)
    variance = sum(np.var(column) for column in sample.T)
    return (columns - mean) / np.sqrt(variance)


def blocks(sample, items, chosen):
    """Features and kernel coordinates of items side by side, every modality; ``chosen`` rows are the landmarks."""
    parts = []
    for name in sorted(sample):
        x, y = sample[name].astype(float), items[name].astype(float)
        landmarks = x[chosen]
        width = np.mean([np.sum((row - landmark) ** 2) for row in x for landmark in landmarks])
        whitening = inverse_root(similarities(landmarks, landmarks, width))
        parts.append(scaled(y, x))
        parts.append(
            scaled(similarities(y, landmarks, width) @ whitening, similarities(x, landmarks, width) @ whitening)
        )
    return np.concatenate(parts, axis=1)


def coordinates(sample, items, chosen, count):
    """The first principal coordinates (n, count) of items, each up to its sign; fewer if the sample has fewer."""
    X = blocks(sample, sample, chosen)
    _, lengths, directions = np.linalg.svd(X, full_matrices=False)
    directions = directions[lengths**2 > 1e-10 * lengths[0] ** 2][:count]
    return blocks(sample, items, chosen) @ directions.T
