"""Slow literal twin of SetNet: one element, one pair, one slope at a time, float64, as the paper writes it."""

from __future__ import annotations

import math

import numpy as np

BLOCKS = (("A", "bias"), ("c",), ("P", "p0"), ("w", "b"))


def unit(x):
    """The vector of length 1 in the direction of x."""
    return x / np.linalg.norm(x)


def vector(elements, net):
    """v of a set: Eq. 1, each element's residuals normalised, summed, normalised, reduced, normalised."""
    total = 0
    for x in elements:
        logits = [a @ x + bias for a, bias in zip(net["A"], net["bias"], strict=True)]
        chances = np.exp(np.array(logits) - max(logits))
        chances /= chances.sum()
        total = total + unit(np.concatenate([s * (x - c) for s, c in zip(chances, net["c"], strict=True)]))
    return unit(net["P"] @ unit(total) + net["p0"])


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def chances(judgement, x, net):
    """Scores of query elements against relevant sets, and against irrelevant ones."""
    query, relevant, irrelevant = judgement
    asked = [vector(x[[q]], net) for q in query]
    return [
        [sigmoid(net["w"] * (v @ vector(x[rows], net)) + net["b"]) for v in asked for rows in sets]
        for sets in (relevant, irrelevant)
    ]


def loss(judgement, x, net):
    """Eq. 2, positives and negatives each averaged."""
    good, bad = chances(judgement, x, net)
    return -np.mean([math.log(p) for p in good]) - np.mean([math.log(1 - p) for p in bad])


def slope(judgement, x, net, h=1e-6):
    """The gradient of the loss by central differences, a parameter at a time."""
    results = {}
    for name, array in net.items():
        slopes = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            sides = []
            for sign in (1, -1):
                moved = {**net, name: array.copy()}
                moved[name][place] += sign * h
                sides.append(loss(judgement, x, moved))
            slopes[place] = (sides[0] - sides[1]) / (2 * h)
        results[name] = slopes
    return results


def setnet(judgements, x, net, *, eta, momentum, decay, exact):
    """Gradient steps with momentum and weight decay; answers (parameters, f of each judgement)."""
    net = {name: np.array(array, np.float64) for name, array in net.items()}
    velocity = {name: np.zeros_like(array) for name, array in net.items()}
    starts = [math.sqrt(sum((net[name] ** 2).sum() for name in block)) or 1.0 for block in BLOCKS]
    scores = []
    for judgement in judgements:
        good, bad = chances(judgement, x, net)
        scores.append(np.mean(bad) - np.mean(good))
        value, slopes = loss(judgement, x, net), slope(judgement, x, net)
        squared_length = sum((array**2).sum() for array in slopes.values())
        for block, start in zip(BLOCKS, starts, strict=True):
            rate, shrink = eta, eta * decay
            if exact:
                length = math.sqrt(sum((slopes[name] ** 2).sum() for name in block))
                rate = min(
                    eta, (1 - momentum) * value / squared_length, (1 - momentum) * 0.1 * start / max(length, 1e-300)
                )
                shrink = min(rate * decay, (1 - momentum) * 0.1)
            for name in block:
                velocity[name] = momentum * velocity[name] - rate * slopes[name] - shrink * net[name]
                net[name] = np.asarray(net[name] + velocity[name])
    return net, np.array(scores)


def greedy(scores):
    """Pairs in falling order of score, each taken if neither side was taken before (5.3)."""
    total, rows, columns = 0.0, set(), set()
    for place in np.argsort(-scores, axis=None, kind="stable"):
        row, column = np.unravel_index(place, scores.shape)
        if row not in rows and column not in columns:
            total += scores[row, column]
            rows.add(row)
            columns.add(column)
    return total
