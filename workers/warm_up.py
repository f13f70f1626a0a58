"""Kernels, ready before the first event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from omdml.comparisons import Judgement
from omdml.learners import LEARNERS, Learner

ROWS = 64  # enough for every start
TURNS = 40  # closes a block


def warm_up(learners: Iterable[tuple[str, str]]) -> None:
    """Compile (the first time) or load the kernels of learners of these names and types, which takes seconds."""
    for name, dtype in sorted(set(learners)):
        small = next(iter(LEARNERS[name]._unit_test_params()))
        learner = LEARNERS[name](**{**small, "dtype": dtype})
        draw = np.random.default_rng(0)
        features = {modality: draw.normal(size=(ROWS, size)).astype(dtype) for modality, size in learner.dims.items()}
        row, columns = comparison(learner)
        for _ in range(TURNS):
            learner.learn_many([row], features, **columns)
        learner.metric.score({modality: table[:1] for modality, table in features.items()}, features)


def comparison(learner: Learner) -> tuple[Any, dict[str, Any]]:
    """Something to learn: a row, and what else it brings."""
    task = next(iter(getattr(learner, "tasks", None) or ()), None)
    brought = {"margin": 1.0, "similar": True, "task": task}
    one, other = np.array([0, 1]), np.array([2, 3])
    row = list(range(learner.width)) if learner.width else Judgement(one, (one,), (other,))
    return row, {column: brought[column] for column in learner.columns}
