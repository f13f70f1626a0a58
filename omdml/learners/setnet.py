"""SetNet: one vector a set, learned from judged sets (SETNET; MATHS 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from omdml.comparisons import Judgement
from omdml.engines.sets import SetsEngine
from omdml.errors import FeedbackError, StartError
from omdml.kernels.sets import Rule
from omdml.learners.base import Array, Learner, Outcome
from omdml.learners.checks import expect, number, whole
from omdml.metrics.base import check_features
from omdml.metrics.sets import PARAMETERS, SetMetric, misshapen
from omdml.pooling import SAMPLE, netvlad_start, shrunk_whitening, unit_scales

LOGISTIC = {"w": 10.0, "b": -3.0}  # of the start
MEMORY = 10_000.0  # judged sets that whitening goes back


class SetNet(Learner):
    """One vector a set, learned from judged sets (Zhong, Arandjelovic, Zisserman 2018; NetVLAD pooling).

    An element x, its modalities side by side, is softly assigned to K clusters, ``s_k = softmax_k(A_k . x + bias_k)``,
    and gives the block ``s_k (x - c_k)``, of unit length over all k. A set's blocks are added up, brought to unit
    length, reduced by ``P V + p0`` and brought to unit length again: v. A set scores ``sigma(w v_q . v_set + b)`` for
    a query element, a set of one. A judgement is one step on the logistic loss, pairs of query elements with relevant
    sets and with irrelevant ones each averaged (SETNET 3.3-3.4), through all of that. ``f`` is the mean score of the
    irrelevant sets minus that of the relevant ones.

    Departures: the start is k-means and PCA of a sample, every modality at equal spread, and a step is capped: each
    block of parameters (A and bias, c, P and p0, w and b) moves by at most a tenth of its length at the start, and by
    no more than ``(1 - momentum) loss / |gradient|^2``. The paper's fixed rate (1e-4) is ``step="ogd"``.

    Parameters
    ----------
    dims
        Dimension of each modality.
    clusters
        K.
    rank
        Numbers of v: at most as many as the sample has directions.
    eta
        Largest rate of a step, > 0; with ``step="ogd"`` the rate itself.
    momentum
        Share of the last step that the next one keeps, in [0, 1).
    decay
        Of the parameters at each step, times its rate.
    step
        ``"pa"`` (capped) or ``"ogd"``.
    init
        ``"kmeans"``, or arrays A (K, D), bias (K,), c (K, D), P (r, K D), p0 (r,), w (), b (), scale (m,) taken as they
        are.
    whiten
        Whether the served vectors are whitened by the covariance of the judged sets' vectors.
    dtype
        ``"float32"`` or ``"float64"``.
    seed
        Of the sample and of k-means.

    Examples
    --------
    >>> import numpy as np
    >>> draw = np.random.default_rng(0)
    >>> label = draw.integers(0, 6, 300)
    >>> features = {"x": np.eye(6)[label] + draw.normal(0, 0.3, (300, 6))}
    >>> first, second = (np.stack([draw.choice(np.flatnonzero(label < 3), 3) for _ in range(200)]),
    ...                  np.stack([draw.choice(np.flatnonzero(label >= 3), 3) for _ in range(200)]))
    >>> judgements = [Judgement(a[:1], (a[1:],), (b,)) for a, b in zip(first, second)]
    >>> model = SetNet(dims={"x": 6}, clusters=3, rank=6)
    >>> model.learn_many(judgements, features).mistakes < 100
    True
    >>> model.metric.embed_sets(features, [[0, 1, 2], [3]]).shape
    (2, 6)
    """

    name: ClassVar[str] = "setnet"
    accepts: ClassVar[frozenset[str]] = frozenset({"set"})
    width: ClassVar[int] = 0

    def __init__(
        self,
        dims: Mapping[str, int],
        clusters: int = 8,
        rank: int = 128,
        eta: float = 0.01,
        momentum: float = 0.9,
        decay: float = 0.001,
        step: str = "pa",
        init: str | Mapping[str, ArrayLike] = "kmeans",
        whiten: bool = False,
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        self.dims = dims
        self.clusters = clusters
        self.rank = rank
        self.eta = eta
        self.momentum = momentum
        self.decay = decay
        self.step = step
        self.init = init
        self.whiten = whiten
        self.dtype = dtype
        self.seed = seed
        self._prepare()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"dims": {"a": 4, "b": 3}, "clusters": 2, "rank": 3}

    def _check(self) -> None:
        expect(whole(self.clusters) and self.clusters >= 1, "clusters", self.clusters, "a whole number of at least 1")
        expect(whole(self.rank) and self.rank >= 1, "rank", self.rank, "a whole number of at least 1")
        expect(number(self.eta) and self.eta > 0, "eta", self.eta, "a rate above 0")
        expect(number(self.momentum) and 0 <= self.momentum < 1, "momentum", self.momentum, "a share in [0, 1)")
        expect(number(self.decay) and self.decay >= 0, "decay", self.decay, "a factor of at least 0")
        expect(self.step in ("pa", "ogd"), "step", self.step, "'pa' or 'ogd'")
        expect(isinstance(self.whiten, bool), "whiten", self.whiten, "True or False")
        if isinstance(self.init, str):
            expect(self.init == "kmeans", "init", self.init, "'kmeans' or arrays")
            return
        expect(set(self.init) == set(PARAMETERS), "init", sorted(self.init), f"arrays for {', '.join(PARAMETERS)}")
        arrays = {name: np.asarray(array) for name, array in self.init.items()}
        wrong = misshapen(arrays, self.dims)
        expect(not wrong, "init", {name: array.shape for name, array in arrays.items()}, f"shapes that fit: {wrong}")
        expect(all(np.isfinite(array).all() for array in arrays.values()), "init", "not finite", "finite numbers")

    def _sampled(self, features: Mapping[str, Array]) -> dict[str, Array]:
        count = len(next(iter(features.values())))
        rows = np.sort(np.random.default_rng(self.seed).choice(count, min(count, SAMPLE), replace=False))
        sample = {name: np.asarray(features[name][rows], np.float64) for name in self.dims}
        for name, x in sample.items():
            bad = np.flatnonzero(~np.isfinite(x).all(axis=1))
            if bad.size:
                raise StartError(f"row {rows[bad[0]]} of modality {name!r} holds values that are not finite: repair it")
        scale = unit_scales(sample, self.seed)
        elements = np.concatenate([x * factor for x, factor in zip(sample.values(), scale, strict=True)], axis=1)
        start = netvlad_start(elements, self.clusters, self.rank, self.seed)
        return {**start, **{name: np.array(value) for name, value in LOGISTIC.items()}, "scale": scale}

    def _begin(self, start: Mapping[str, Array]) -> SetsEngine:
        rule = Rule(float(self.eta), float(self.momentum), float(self.decay), self.step == "pa", MEMORY)
        return SetsEngine(self.dims, start, rule, self.whiten)

    def _blank(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        (K, r), D = SetsEngine.sizes(tensors), sum(self.dims.values())
        shapes = {"A": (K, D), "bias": (K,), "c": (K, D), "P": (r, K * D), "p0": (r,), "w": (), "b": ()}
        return {name: np.zeros(shape, self.dtype) for name, shape in {**shapes, "scale": (len(self.dims),)}.items()}

    def learn_many(self, judgements: Sequence[Judgement], features: Mapping[str, Array], **kw: Any) -> Outcome:  # type: ignore[override]
        """Learn judgements in order, all of them or none.

        Parameters
        ----------
        judgements
            Query elements, relevant sets, irrelevant sets: row numbers (n,) of each one's elements.
        features
            Matrices (n, d_i) a modality, whole: memory maps will do, only touched rows are read and cast.

        Returns
        -------
        ``scores`` are the mean score of the irrelevant sets minus that of the relevant ones.

        Raises
        ------
        FeedbackError
            A set with no elements, a row out of range or with values that are not finite (``row`` says which
            judgement), features that do not fit. The state is as before.
        StartError
            On the first call, features too few for the start.
        """
        expect(not kw, "learn_many", sorted(kw), "judgements and features, nothing else")
        elements, ends, parts = packed(judgements, check_features(features, self.dims))
        return self._learn(elements[:, None], features, ends, parts, width=1)

    def learn_one(self, judgement: Judgement, features: Mapping[str, Array], **kw: Any) -> Outcome:  # type: ignore[override]
        """``learn_many`` on one judgement: same decisions, same bytes."""
        return self.learn_many([judgement], features, **kw)

    @property
    def metric(self) -> SetMetric:
        """What is served."""
        engine: SetsEngine = self._started("metric")
        whitening = shrunk_whitening(*engine.moments()) if self.whiten else None
        return SetMetric(self.dims, self.matrices, whitening)

    @property
    def matrices(self) -> dict[str, Array]:
        """A (K, D), bias (K,), c (K, D), P (r, K D), p0 (r,), w (), b () as learned, and scale (m,)."""
        engine: SetsEngine = self._started("matrices")
        return engine.parameters()


def packed(judgements: Sequence[Judgement], count: int) -> tuple[Array, Array, Array]:
    """Elements (N,) of all groups, where each group ends among them (M,), and groups of each kind a judgement (T, 3).

    Query elements are groups of one. Raises FeedbackError naming the judgement.
    """
    groups, sizes, parts = [np.empty(0, np.int64)], [], []
    for t, judgement in enumerate(judgements):
        query, relevant, irrelevant = judgement
        sets = [group(t, what, rows, count) for what, rows in named(query, relevant, irrelevant)]
        groups += sets
        sizes += [1] * len(sets[0]) + [len(rows) for rows in sets[1:]]
        parts.append((len(sets[0]), len(relevant), len(irrelevant)))
        if not relevant or not irrelevant:
            missing = "relevant" if not relevant else "irrelevant"
            raise refused(t, f"has no {missing} set: name at least one", "empty_list")
    return np.concatenate(groups), np.cumsum(sizes, dtype=np.int64), np.array(parts, np.int64).reshape(-1, 3)


def named(query: Array, relevant: Sequence[Array], irrelevant: Sequence[Array]) -> list[tuple[str, Array]]:
    """The groups of a judgement and what messages call them."""
    sets = [
        (f"{kind} set {i}", rows)
        for kind, some in (("relevant", relevant), ("irrelevant", irrelevant))
        for i, rows in enumerate(some)
    ]
    return [("query", query), *sets]


def group(t: int, what: str, rows: ArrayLike, count: int) -> Array:
    """Row numbers of a set's elements, int64, each below ``count``."""
    elements = np.asarray(rows)
    if elements.size == 0:
        raise refused(t, f"{what} has no elements: leave it out", "empty_list")
    if elements.ndim != 1 or elements.dtype.kind not in "iu":
        raise refused(t, f"{what} is {elements.dtype} of shape {elements.shape}, expected row numbers (n,)", "invalid")
    if elements.min() < 0 or elements.max() >= count:
        raise refused(
            t, f"{what} names rows {elements.tolist()}, the features have rows 0 to {count - 1}", "unknown_item"
        )
    return elements.astype(np.int64)


def refused(t: int, what: str, reason: str) -> FeedbackError:
    """The error for a judgement that cannot be learned."""
    return FeedbackError(f"judgement {t}: {what}; nothing was learned", reason=reason, row=t)
