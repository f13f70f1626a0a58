"""The batch start of a learner: which problem to solve, in which units, and how strongly regularised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from omdml.batch.contrasts import Contrasts
from omdml.batch.full import fit_full
from omdml.batch.newton import fit_vector
from omdml.batch.ranked import fit_ranked
from omdml.errors import StartError
from omdml.learners import OMDML, Diagonal, Learner, Qwise, Signed
from omdml.learners.shared.base import Array
from omdml.learners.shared.full_matrices import FullMatrixLearner
from omdml.metrics.base import check_features

# lam of full matrices, per comparison.
FROBENIUS = 1e-3
# The least lam of vectors, per comparison.
LEAST = 1e-6
# The tolerance for full matrices. A smaller one does not change mAP.
TOLERANCE = 1e-4
Solver = Callable[[Any, Array, Mapping[str, Array], ArrayLike], dict[str, Array]]


def batch_start(
    learner: Learner, rows: ArrayLike, features: Mapping[str, Array], margin: ArrayLike = 1.0
) -> dict[str, Array]:
    """The ``init`` from which a learner with these settings should start, computed from a log.

    Each modality is scaled to unit spread over the log's pairs first, so that neither the regulariser nor the margins
    depend on the units of the features. The result is scaled back. The learner's own regularisers (``lam``, ``mu``,
    ``trace``), which act at single comparisons, are multiplied by the number of comparisons. Qwise gets
    :func:`fit_full`. OMDML gets it for each modality alone, because each has its own loss. Diagonal gets
    :func:`fit_ranked` or, with ``frobenius``, :func:`fit_vector`. Signed gets :func:`fit_vector`.

    Full matrices get ``lam = 0.001`` per comparison in addition. After 3,000 triplets, mAP with 0.0001, 0.001, 0.01 and
    0.1 is 0.938, 0.939, 0.930 and 0.900 on mfeat, where one pass of Qwise has 0.928, and 0.888, 0.889, 0.868 and 0.839
    on leaves100, where one pass has 0.882. With its default ``lam``, Diagonal has 0.896 on mfeat with ``variance``,
    where one pass has 0.846, and 0.902 with ``frobenius``.

    Parameters
    ----------
    learner
        Its class and hyperparameters are used. It is not changed.
    rows : (T, 4) or (T, 3)
        Row numbers of near pair and far pair; or of query, relevant, irrelevant.
    features
        Matrices (n, d_i) of the learner's modalities.
    margin : scalar or (T,)

    Raises
    ------
    FeedbackError, StartError
        See :meth:`Contrasts.of`; StartError also if the learner has no batch form.
    """
    check_batch_form(type(learner))
    check_features(features, learner.dims)
    ordered = {name: features[name] for name in learner.dims}
    contrasts = Contrasts.of(rows, ordered, margin)
    spread = {name: mean_square(contrasts.near[name], contrasts.far[name]) for name in ordered}
    touched, renumbered = np.unique(np.asarray(rows), return_inverse=True)
    scaled = {name: np.asarray(x[touched], np.float64) / np.sqrt(spread[name]) for name, x in ordered.items()}
    start = SOLVERS[type(learner)](learner, renumbered.reshape(np.shape(rows)), scaled, margin)
    power = 0.5 if isinstance(learner, Signed) else 1.0
    return {name: array / spread[name] ** power for name, array in start.items()}


def check_batch_form(learner: type[Learner]) -> None:
    """Raise StartError if learners of this class have no batch form."""
    if learner not in SOLVERS:
        name, known = getattr(learner, "name", learner.__name__), ", ".join(batch_learners())
        raise StartError(f"{name} has no batch form, expected one of {known}: other learners start as their init says")


def batch_learners() -> list[str]:
    """Names of the learners that have a batch form."""
    return sorted(kind.name for kind in SOLVERS)


def mean_square(near: Array, far: Array) -> float:
    """Mean squared length of these differences (T, d); 1 if they are all 0."""
    return float((near**2).sum() + (far**2).sum()) / (2 * len(near)) or 1.0


def _together(learner: FullMatrixLearner, rows: Array, features: Mapping[str, Array], margin: ArrayLike) -> Any:
    count = len(rows)
    weights = {"lam": FROBENIUS * count, "trace": learner.trace * count, "mu": learner.mu * count}
    return fit_full(rows, features, margin, **weights, k=learner.k, tol=TOLERANCE)


def _apart(learner: OMDML, rows: Array, features: Mapping[str, Array], margin: ArrayLike) -> Any:
    return {name: _together(learner, rows, {name: x}, margin)[name] for name, x in features.items()}


def _diagonal(learner: Diagonal, rows: Array, features: Mapping[str, Array], margin: ArrayLike) -> Any:
    solver = fit_ranked if learner.regulariser == "variance" else fit_vector
    return solver(rows, features, margin, lam=max(learner.lam, LEAST) * len(rows), group=learner._group())


def _signed(learner: Signed, rows: Array, features: Mapping[str, Array], margin: ArrayLike) -> Any:
    return fit_vector(rows, features, margin, lam=max(learner.lam, LEAST) * len(rows), signed=True)


# How to compute the start of each class of learners that has a batch form.
SOLVERS: dict[type[Learner], Solver] = {OMDML: _apart, Qwise: _together, Diagonal: _diagonal, Signed: _signed}
