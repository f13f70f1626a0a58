"""A small learner of every kind, items, and comparisons that it takes."""

from __future__ import annotations

import inspect

import numpy as np

from omdml import LEARNERS
from omdml.comparisons import Judgement

ITEMS, EVENTS = 60, 96
DIMS = {"shape": 7, "color": 4}
OPTIONS = {"cpmtml": {"tasks": ["one", "two"]}, "stml": {"tasks": ["one", "two"]}, "mtlmca": {"tasks": ["one", "two"]}}


def features(seed=0):
    draw = np.random.default_rng(seed)
    return {modality: draw.normal(0, 1, (ITEMS, d)) for modality, d in DIMS.items()}


def small_learner(name, **options):
    """A learner of two modalities, of rank 3 if it has one."""
    rank = {"rank": 3} if "rank" in inspect.signature(LEARNERS[name]).parameters else {}
    return LEARNERS[name](dims=DIMS, **{**rank, **OPTIONS.get(name, {}), **options})


def comparisons(name, count=EVENTS, seed=0):
    """Comparisons of a kind that this learner takes, and their columns, such as margins."""
    draw, accepts = np.random.default_rng(seed), LEARNERS[name].accepts
    if "set" in accepts:
        sets = [draw.choice(ITEMS, draw.integers(1, 4), replace=False) for _ in range(3 * count)]
        return [Judgement(sets[3 * t], (sets[3 * t + 1],), (sets[3 * t + 2],)) for t in range(count)], {}
    if accepts == {"pair"}:
        tasks = np.array(OPTIONS.get(name, {}).get("tasks", ["default"]))[
            draw.integers(0, 1 + (name in OPTIONS), count)
        ]
        return draw.integers(0, ITEMS, (count, 2)), {"similar": draw.random(count) < 0.5, "task": tasks}
    rows = np.stack([draw.permutation(ITEMS)[: LEARNERS[name].width] for _ in range(count)])
    brought = {"margin": draw.uniform(0.5, 2, count), "weight": draw.uniform(0.1, 1, count)}
    return rows, {column: brought[column] for column in LEARNERS[name].columns}


def learn(model, rows, columns, begin=0, end=None, items=None):
    """Have a model learn a part of the comparisons, in one call."""
    part = {column: values[begin:end] for column, values in columns.items()}
    return model.learn_many(rows[begin:end], items or features(), **part)
