"""SetNet: one vector for each set, learned from judged sets (SETNET; MATHS 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from omdml.comparisons import Judgement
from omdml.errors import FeedbackError, quoted
from omdml.initial import check_sample
from omdml.learners.shared.base import Array, Learner, Outcome
from omdml.learners.shared.checks import check_rate, check_step, expect, is_number, is_whole
from omdml.metrics.base import check_features
from omdml.metrics.sets import PARAMETERS, SetMetric, misshapen
from omdml.pooling import SAMPLE, netvlad_start, row_numbers, shrunk_whitening

if TYPE_CHECKING:
    from omdml.engines.sets import SetsEngine

# The logistic part of the start.
LOGISTIC = {"w": 10.0, "b": -3.0}
# Number of judged sets over which the moments for whitening are averaged.
MEMORY = 10_000.0


class SetNet(Learner):
    """One vector for each set, learned from judged sets (Zhong, Arandjelovic, Zisserman 2020; NetVLAD pooling).

    The vector v (r,) of a set is made in four steps (SETNET 3.2). D is the sum of ``dims``:

    1. An element x (D,), its modalities side by side, each times its ``scale``, is softly assigned to K clusters:
       ``s_k = softmax_k(A_k . x + bias_k)``.
    2. It gives the K blocks ``s_k (x - c_k)``, scaled so that all of them together have unit length.
    3. The blocks of a set's elements are added up, and scaled to unit length: V (K D,).
    4. ``P V + p0``, scaled to unit length, is v.

    A query element is a set of one. For it a set scores ``sigma(w v_q . v_set + b)``, sigma being the logistic
    function. Each judgement makes one gradient step on the logistic loss: its mean over pairs of query elements with
    relevant sets, plus its mean over pairs with irrelevant sets (SETNET 3.3-3.4). ``f`` is the mean score of the
    irrelevant sets minus that of the relevant ones.

    Departures, measured by nDCG@10 of queries of two elements in 1,500 sets of two to five, after 4,000 judgements (one
    or two query elements, one or two relevant sets, six irrelevant ones of which half are hard), means of two seeds:

    - *Step.* Its rate is at most ``(1 - momentum) loss / |gradient|^2``, and each block of parameters (A and bias; c; P
      and p0; w and b) moves by at most a tenth of its length at the start. On leaves100 (classes not learned from, one
      seed) the fixed rates 1e-4, 1e-3, 0.01, 0.1 and 1 have 0.761, 0.768, 0.688, 0.314 and 0.158. The same rates, but
      capped, have 0.761, 0.771, 0.781, 0.782 and 0.782, and 1e300 has the last figure too. The paper's step is
      ``step="ogd", eta=1e-4``.
    - *Start.* Modalities have equal spread. The ratio of the two largest assignments s_k is 2 in the median. A ratio of
      10, which is less soft, has the figures in brackets. On classes learned from: yaleb 0.671 (0.476), caltech101_20
      0.686 (0.649), leaves100 0.877 (0.889), mfeat 0.978 (0.983). On others, in the same order: 0.775 (0.626), 0.756
      (0.690), 0.799 (0.762), 0.902 (0.884).
    - *Whitening* follows what is learned: it uses running moments of the judged sets' vectors. It is off by default,
      because it costs more than it brings: on classes learned from, mfeat falls from 0.978 to 0.794, yaleb from 0.671
      to 0.489.

    For comparison, these are the figures of mean pooling: of unit elements, and of whitened ones. On other items of the
    classes learned from: leaves100 0.601 and 0.619, mfeat 0.886 and 0.553, yaleb 0.255 and 0.406, caltech101_20
    0.494 and 0.406. On classes not learned from: leaves100 0.662 and 0.623, yaleb 0.567 and 0.652. If there are few
    classes to learn from, mean pooling of unit elements stays ahead on the others: caltech101_20 (13 classes) 0.820 and
    0.720, mfeat (6 classes) 0.988 and 0.963.

    Parameters
    ----------
    dims
        Dimension d_i of each modality, by name.
    clusters
        Number K of clusters.
    rank
        Number r of components of v: ``min(rank, K D)``.
    eta
        Largest rate of a step, > 0; with ``step="ogd"`` the rate itself.
    momentum
        Share of a step that is added to the next one, in [0, 1).
    decay
        Weight decay, >= 0: a step subtracts the share ``rate decay`` of every parameter.
    step
        ``"pa"`` (capped as above) or ``"ogd"`` (at a fixed rate).
    init
        ``"kmeans"`` computes the clusters from a sample of 2,000 items (of 2 ``rank`` if that is more). Or give the
        arrays A (K, D), bias (K,), c (K, D), P (r, K D), p0 (r,), w (), b () and scale (m,), used as they are.
        ``scale`` is a factor for each of the m modalities.
    whiten
        Whether the served vectors are whitened by the covariance of the judged sets' vectors.
    dtype
        ``"float32"`` or ``"float64"``.
    seed
        Seed of the sample, and of k-means.

    Examples
    --------
    >>> import numpy as np
    >>> draw = np.random.default_rng(0)
    >>> label = np.arange(300) % 6
    >>> features = {"face": np.eye(6)[label] + draw.normal(0, 0.4, (300, 6)), "noise": draw.normal(0, 1, (300, 6))}
    >>> drawn = draw.integers(0, 50, (400, 5)) * 6 + [0, 0, 1, 2, 3] + draw.integers(0, 3, (400, 1))
    >>> # The relevant set has an item of the query's label.
    >>> judgements = [Judgement(t[:1], (t[1:3],), (t[3:],)) for t in drawn]
    >>> model = SetNet(dims={"face": 6, "noise": 6}, clusters=2, rank=16)
    >>> [model.learn_many(judgements[i : i + 100], features).mistakes for i in (0, 100, 200, 300)]
    [16, 10, 6, 4]
    >>> model.metric.embed_sets(features, [np.array([0, 1, 2]), np.array([3])]).shape
    (2, 16)
    """

    name: ClassVar[str] = "setnet"
    accepts: ClassVar[frozenset[str]] = frozenset({"set"})
    width: ClassVar[int] = 0
    # It scales its modalities itself.
    step_changes = None
    no_embedding = "it learns from judged sets, which labels of single items do not make"

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
        expect(
            is_whole(self.clusters) and self.clusters >= 1, "clusters", self.clusters, "a whole number of at least 1"
        )
        expect(is_whole(self.rank) and self.rank >= 1, "rank", self.rank, "a whole number of at least 1")
        check_rate("eta", self.eta)
        expect(is_number(self.momentum) and 0 <= self.momentum < 1, "momentum", self.momentum, "a share in [0, 1)")
        expect(is_number(self.decay) and self.decay >= 0, "decay", self.decay, "a factor of at least 0")
        check_step(self.step)
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
        most = max(SAMPLE, 2 * self.rank)
        rows = np.sort(np.random.default_rng(self.seed).choice(count, min(count, most), replace=False))
        sample = {name: np.asarray(features[name][rows], np.float64) for name in self.dims}
        for name, x in sample.items():
            check_sample(x, rows, name)
        start = netvlad_start(sample, self.clusters, self.rank, self.seed)
        return {**start, **{name: np.array(value) for name, value in LOGISTIC.items()}}

    def _begin(self, start: Mapping[str, Array]) -> SetsEngine:
        from omdml.engines.sets import SetsEngine
        from omdml.kernels.sets.walk import Rule

        rule = Rule(float(self.eta), float(self.momentum), float(self.decay), self.step == "pa", MEMORY)
        return SetsEngine(self.dims, start, rule, self.whiten)

    def _shapes(self, tensors: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        from omdml.engines.sets import SetsEngine

        (K, r), D = SetsEngine.sizes(tensors), sum(self.dims.values())
        shapes = {"A": (K, D), "bias": (K,), "c": (K, D), "P": (r, K * D), "p0": (r,), "w": (), "b": ()}
        return {**shapes, "scale": (len(self.dims),)}

    def learn_many(self, judgements: Sequence[Judgement], features: Mapping[str, Array], **kw: Any) -> Outcome:  # type: ignore[override]
        """Learn judgements in order, all of them or none.

        Parameters
        ----------
        judgements
            Each has the row numbers (n,) of the query's elements, of the elements of each relevant set, and of the
            elements of each irrelevant set (:class:`omdml.comparisons.Judgement`).
        features
            One matrix (n, d_i) for each modality, with all items. Memory maps are fine: only the rows that are named
            are read and cast.

        Returns
        -------
        An Outcome. Its ``scores`` (T,) are the mean score of the irrelevant sets minus that of the relevant ones.

        Raises
        ------
        FeedbackError
            A set has no elements, a row is out of range, an element has values that are not finite, learning would
            overflow, or the features do not fit ``dims``. ``row`` is the index of the judgement, if one is the cause.
            Nothing was learned.
        StartError
            On the first call: no start can be computed from the features. Nothing was learned.
        ParameterError
            A keyword is given.
        """
        expect(not kw, "other arguments of learn_many", sorted(kw), "judgements and features, nothing else")
        elements, ends, group_counts = packed(judgements, check_features(features, self.dims))
        return self._learn(elements[:, None], features, ends, group_counts, width=1)

    def learn_one(self, judgement: Judgement, features: Mapping[str, Array], **kw: Any) -> Outcome:  # type: ignore[override]
        """Learn one judgement. The state and the errors are those of :meth:`learn_many`."""
        return self.learn_many([judgement], features, **kw)

    @property
    def metric(self) -> SetMetric:
        """The metric to serve, of all that was learned so far. Raises NotStarted."""
        engine: SetsEngine = self._started("metric")
        whitening = shrunk_whitening(*engine.moments()) if self.whiten else None
        return SetMetric(self.dims, self.matrices, whitening)

    @property
    def matrices(self) -> dict[str, Array]:
        """A (K, D), bias (K,), c (K, D), P (r, K D), p0 (r,), w (), b () as learned; scale (m,). Raises NotStarted."""
        engine: SetsEngine = self._started("matrices")
        return engine.parameters()


def packed(judgements: Sequence[Judgement], count: int) -> tuple[Array, Array, Array]:
    """Judgements as arrays: all elements (N,), the ends of groups (M,), and each judgement's numbers of groups (T, 3).

    The three numbers are those of query elements, relevant and irrelevant sets. A query element is a group of one.
    Raises FeedbackError that names the judgement.
    """
    groups, sizes, group_counts = [np.empty(0, np.int64)], [], []
    if not isinstance(judgements, Iterable):
        raise FeedbackError(f"judgements are {quoted(judgements)}, expected a sequence of Judgement")
    for t, judgement in enumerate(judgements):
        try:
            query, relevant, irrelevant = judgement
            named_groups = groups_by_name(query, relevant, irrelevant)
        except (TypeError, ValueError) as error:
            expected = "expected a Judgement: row numbers, relevant sets, irrelevant sets"
            raise refused(t, f"{quoted(judgement)}, {expected}", "invalid") from error
        sets = [group(t, what, rows, count) for what, rows in named_groups]
        groups += sets
        sizes += [1] * len(sets[0]) + [len(rows) for rows in sets[1:]]
        group_counts.append((len(sets[0]), len(relevant), len(irrelevant)))
        if not all(group_counts[-1]):
            missing = "irrelevant" if len(relevant) else "relevant"
            raise refused(t, f"has no {missing} set: name at least one", "empty_list")
    return np.concatenate(groups), np.cumsum(sizes, dtype=np.int64), np.array(group_counts, np.int64).reshape(-1, 3)


def groups_by_name(query: Array, relevant: Sequence[Array], irrelevant: Sequence[Array]) -> list[tuple[str, Array]]:
    """The groups of a judgement, with their names in error messages."""
    sets = [
        (f"{kind} set {i}", rows)
        for kind, judged in (("relevant", relevant), ("irrelevant", irrelevant))
        for i, rows in enumerate(judged)
    ]
    return [("query", query), *sets]


def group(t: int, what: str, rows: ArrayLike, count: int) -> Array:
    """Row numbers of a set's elements as int64; raises FeedbackError unless each is below ``count``."""
    try:
        return row_numbers(what, rows, count)
    except FeedbackError as error:
        raise refused(t, str(error), error.reason) from None


def refused(t: int, what: str, reason: str) -> FeedbackError:
    """The error for a judgement that cannot be learned."""
    return FeedbackError(f"judgement {t}: {what}; nothing was learned", reason=reason, row=t)
