"""How clearly a metric orders comparisons correctly, whatever its scale: the way to compare two metrics (MATHS 1).

A few hundred comparisons are too few to tell two metrics apart by their mistakes. They are enough if the margin of each
comparison by the one metric is subtracted from its margin by the other. An example is mfeat with 30 % of the clicks
inverted, and 128 comparisons that judge the metrics before and after the first 1,000 clicks. The mean margin falls by
ten standard errors, while the numbers of mistakes differ by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.comparisons import Judgement
from omdml.engines.base import near_and_far
from omdml.metrics import Metric, SetMetric

Array = NDArray[Any]


def margins(metric: Metric, rows: Array, features: Mapping[str, Array], task: str | None = None) -> Array:
    """Margins (n,) of comparisons: ``(D(far) - D(near)) / (D(far) + D(near))``, in [-1, 1]; above 0 is correct.

    For a metric that has scores S instead of distances: ``(S(near) - S(far)) / (|S(near)| + |S(far)|)``.

    Parameters
    ----------
    rows : (n, 4) or (n, 3)
        Row numbers of the near and of the far pair, or of query, relevant, irrelevant.
    features
        One matrix (rows, d_i) for each modality; only the rows that are named are read.
    task
        The task, if the metric has several.

    Raises FeedbackError if the features do not fit the metric.
    """
    task = task if task in metric.tasks else None
    pairs = near_and_far(rows).reshape(-1, 2)
    left, right = ({name: np.asarray(features[name][side]) for name in metric.dims} for side in pairs.T)
    near, far = metric.closeness(left, right, task).astype(np.float64).reshape(-1, 2).T
    return ratio(near - far, np.abs(near) + np.abs(far))


def margins_of_sets(metric: SetMetric, judgements: Sequence[Judgement], features: Mapping[str, Array]) -> Array:
    """Margins (n,) of judgements, in [-1, 1].

    A margin is half the difference of the mean ``v_q . v_set`` of relevant and irrelevant sets. It is 0 if a judgement
    has no relevant or no irrelevant sets. The margins do not use the scores, whose sigmoid saturates and has a learned
    slope.
    """
    groups = [[query, *relevant, *irrelevant] for query, relevant, irrelevant in judgements]
    vectors = metric.embed_sets(features, [rows for sets in groups for rows in sets]) if groups else np.empty((0, 0))
    values, start = np.zeros(len(groups)), 0
    for index, (_, relevant, irrelevant) in enumerate(judgements):
        nearness = vectors[start + 1 : start + len(groups[index])] @ vectors[start]
        start += len(groups[index])
        if relevant and irrelevant:
            values[index] = (nearness[: len(relevant)].mean() - nearness[len(relevant) :].mean()) / 2
    return values


def ratio(part: Any, whole: Any) -> Any:
    """``part / whole``, or 0 if ``whole`` is 0."""
    return np.divide(part, whole, out=np.zeros_like(np.asarray(whole, np.float64)), where=np.asarray(whole) != 0)
