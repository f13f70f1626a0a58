"""Judged sets, at random or by the labels of their elements."""

from __future__ import annotations

import numpy as np

from omdml.comparisons import Judgement

DIMS = {"a": 3, "b": 2}
ITEMS = 40


def features(seed=0, items=ITEMS, dims=DIMS):
    draw = np.random.default_rng(seed)
    return {name: draw.normal(0, 1, (items, d)) for name, d in dims.items()}


def arrays(seed=0, clusters=2, rank=3, dims=DIMS, scale=(1.0, 2.0)):
    """Random parameters of the metric, by name."""
    draw, size = np.random.default_rng(seed), sum(dims.values())
    return {
        "A": draw.normal(0, 1, (clusters, size)),
        "bias": draw.normal(0, 1, clusters),
        "c": draw.normal(0, 1, (clusters, size)),
        "P": draw.normal(0, 1, (rank, clusters * size)),
        "p0": draw.normal(0, 0.1, rank),
        "w": np.array(5.0),
        "b": np.array(-1.0),
        "scale": np.array(scale),
    }


def side_by_side(items, scale=(1.0, 2.0)):
    """Elements as the network sees them."""
    return np.concatenate([x * factor for x, factor in zip(items.values(), scale, strict=True)], axis=1)


def judgements(count, seed=0, items=ITEMS):
    """Queries of one or two elements, one to three sets of one to four on either side."""
    draw = np.random.default_rng(seed)

    def sets():
        return tuple(draw.choice(items, draw.integers(1, 5), replace=False) for _ in range(draw.integers(1, 4)))

    return [Judgement(draw.choice(items, draw.integers(1, 3), replace=False), sets(), sets()) for _ in range(count)]


def labelled(seed=0, labels=12, each=20):
    """Items of many labels, and these labels. Some directions show the label, and more do not."""
    draw = np.random.default_rng(seed)
    label = np.repeat(np.arange(labels), each)
    signal = draw.normal(0, 1, (labels, 6))[label] + draw.normal(0, 0.4, (labels * each, 6))
    return {"signal": signal, "noise": draw.normal(0, 1.5, (labels * each, 10))}, label


def judged_by_label(label, count, seed=0):
    """One query element; a set with its label is relevant, three without are not."""
    draw = np.random.default_rng(seed)

    def some_set(first):
        others = draw.choice(np.flatnonzero(label != label[first]), 2, replace=False)
        return np.array([first, *others])

    drawn = []
    while len(drawn) < count:
        q, r = draw.integers(0, len(label), 2)
        if label[q] == label[r] and q != r:
            others = draw.choice(np.flatnonzero(label != label[q]), (3, 3))
            drawn.append(Judgement(np.array([q]), (some_set(r),), tuple(others)))
    return drawn
