"""Diagonal metrics from a log by quadratic programming (RANK Eq. 10 and 11); needs ``omdml[batch]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike

from omdml.batch.contrasts import Contrasts
from omdml.errors import StartError
from omdml.learners.shared.base import Array
from omdml.learners.shared.checks import expect, is_number, shape_of


def fit_ranked(
    rows: ArrayLike,
    features: Mapping[str, Array],
    margin: ArrayLike = 1.0,
    lam: float = 1.0,
    group: Array | None = None,
) -> dict[str, Array]:
    """One weight for each coordinate, as equal as the log allows (Lee et al., CVPR 2008, Eq. 11).

        min over w >= 0 of  lam/2 sum_j (w_j - mean(w))^2 + sum_q max(0, margin_q - w . v_q)

    with ``v_q = b o b - a o a``, a and b being the differences of the near and the far pair of comparison q. The
    paper's margins are 1.

    Parameters
    ----------
    rows : (T, 4) or (T, 3)
        Row numbers of near pair and far pair; or of query, relevant, irrelevant.
    features
        One matrix (n, d_i) for each modality.
    margin : scalar or (T,)
    lam
        Weight of the regulariser, > 0.
    group : (sum d_i,)
        Number of the weight that each coordinate shares, from 0 on; None: each has a weight of its own. w holds a
        shared weight once.

    Returns
    -------
    w_i (d_i,), float64: an ``init`` for Diagonal.

    Raises
    ------
    FeedbackError, StartError
        See :meth:`Contrasts.of`; StartError also if no optimum was found, or clarabel is not installed.
    ParameterError
        ``lam`` is out of range.
    """
    expect(is_number(lam) and lam > 0, "lam", lam, "a weight above 0")
    contrasts = Contrasts.of(rows, features, margin)
    vectors = contrasts.vectors(np.square, group)
    count, size = vectors.shape
    unit = spread(vectors)
    centring = (np.eye(size) - 1 / size) * (lam / unit**2)
    slack = sparse.eye_array(count)
    solution = quadratic_program(
        sparse.block_diag([centring, sparse.csc_array((count, count))]),
        np.repeat([0.0, 1.0], [size, count]),
        sparse.vstack([sparse.hstack([sparse.csc_array(-vectors / unit), -slack]), -sparse.eye_array(size + count)]),
        np.concatenate([-contrasts.margin, np.zeros(size + count)]),
    )
    return contrasts.split(np.maximum(solution[:size], 0.0) / unit, group)


def fit_pairs(
    pairs: ArrayLike, features: Mapping[str, Array], similar: ArrayLike, lam: float = 1.0, group: Array | None = None
) -> dict[str, Array]:
    """One weight for each coordinate: similar pairs close, every dissimilar pair at least 1 apart (RANK Eq. 10).

        min over w >= 0 of  sum over similar pairs of w . (c o c) + lam/2 |w|^2    with  w . (c o c) >= 1 for all others

    c being the difference of the pair. The paper compares Eq. 11 with this problem, which tolerates no contradictions.

    Parameters
    ----------
    pairs : (T, 2)
        Row numbers.
    features
        One matrix (n, d_i) for each modality.
    similar : (T,) of bool
        Whether the two items of each pair are similar.
    lam, group
        As for :func:`fit_ranked`.

    Returns
    -------
    w_i (d_i,), float64: an ``init`` for Diagonal.

    Raises
    ------
    FeedbackError, ParameterError
        See :func:`fit_ranked`; ParameterError also if ``similar`` does not fit.
    StartError
        There are no pairs, the two items of a dissimilar pair are the same in every coordinate, or clarabel is not
        installed.
    """
    expect(is_number(lam) and lam > 0, "lam", lam, "a weight above 0")
    signs = np.asarray(similar)
    expect(signs.shape == shape_of(pairs)[:1] and signs.dtype == bool, "similar", signs.shape, "a bool for each pair")
    fits = shape_of(pairs)[1:] == (2,)
    contrasts = Contrasts.of(np.asarray(pairs)[:, [0, 0, 0, 1]] if fits else pairs, features)
    vectors = contrasts.vectors(np.square, group)
    alike = np.flatnonzero(~signs & ~vectors.any(axis=1))
    if alike.size:
        raise StartError(f"pair {alike[0]} is dissimilar, but its items are the same: no weights can part them")
    unit, size = spread(vectors), vectors.shape[1]
    solution = quadratic_program(
        sparse.eye_array(size) * (lam / unit**2),
        vectors[signs].sum(axis=0) / unit,
        sparse.vstack([sparse.csc_array(-vectors[~signs] / unit), -sparse.eye_array(size)]),
        np.repeat([-1.0, 0.0], [int((~signs).sum()), size]),
    )
    return contrasts.split(np.maximum(solution, 0.0) / unit, group)


def spread(vectors: Array) -> float:
    """A typical size of the numbers in ``vectors`` (T, G), by which the problem is scaled for the solver."""
    return float(np.abs(vectors).sum(axis=1).mean()) or 1.0


def quadratic_program(P: Any, q: Array, A: Any, b: Array) -> Array:
    """The x (n,) that minimises ``x' P x / 2 + q . x`` with ``A x <= b``.

    It is found by clarabel's interior-point method, on one thread. Raises StartError if there is no solution, or
    clarabel is not installed.

    clarabel was chosen by measurement. For 5,000 triplets of mfeat in 200 dimensions, it reaches a gap of 8e-10 in
    2.9 s. OSQP ends after 20,000 iterations and 31 s, at an objective that is 0.4 % too high.
    """
    try:
        import clarabel
    except ImportError:
        raise StartError("the quadratic programs of RANK need clarabel: pip install 'omdml[batch]'") from None
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    cone = [clarabel.NonnegativeConeT(len(b))]
    upper = sparse.csc_matrix(sparse.triu(P))
    solution = clarabel.DefaultSolver(upper, q, sparse.csc_matrix(A), b, cone, settings).solve()
    if solution.status not in (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved):
        raise StartError(f"the quadratic program has no solution ({solution.status}): look for extreme values")
    return np.array(solution.x)
