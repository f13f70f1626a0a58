"""DCA: directions in which near pairs differ less than any two items, from second moments alone (MATHS 12)."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from omdml.engines.second_order.covariance import CovarianceEngine
from omdml.engines.second_order.discriminant import symmetric
from omdml.engines.second_order.parent import Parent, same
from omdml.engines.second_order.state import SYMMETRIC
from omdml.errors import CorruptError, FeedbackError, ParameterError
from omdml.initial import check_axes, coordinates_start, principal_start
from omdml.learners.shared.base import Array, Learner, Outcome
from omdml.learners.shared.checks import check_rows, expect, number, tables, whole
from omdml.learners.shared.pairs import signs
from omdml.metrics import Metric
from omdml.metrics.base import check_features
from omdml.metrics.cosine import CosineMetric

# The most principal coordinates.
MOST = 4_096
START = ("mean", "basis", "deviations")
STARTS = {"pca": principal_start, "coordinates": coordinates_start}


class DCA(Learner):
    """Online discriminative component analysis of near pairs (after Hoi, Liu, Lyu, Ma, CVPR 2006).

    All modalities side by side are one vector, in the catalogue's principal coordinates z. Two experts share the
    covariance of near pairs (q, r), ``S = mean (z_q - z_r)(z_q - z_r)' / 2 + lambda I``, and differ in what T they
    compare it with. *items*: the covariance of the items in near pairs. *far*: that of the far pairs (q, s), to which
    lambda I is added too. The metric of each consists of the generalised eigenvectors ``T u = b S u`` with b above 1,

        A'A = W V (1 - 1/b)+ V' W,    W = S^(-1/2),    W T W = V diag(b) V',

    and it embeds an item as ``unit(A z)``. Hedge weighs the two by how each ordered the triplets before it learned
    them, unless they knew other answers to the same search, with a loss that is linear in the difference of the
    distances: wrong answers make it larger for both. *items* is ahead if many answers are wrong, for a swap changes
    little of what is clicked; *far* if people answer about pages of the metric itself, where near and far pairs alike
    are alike in what the metric knows. What is served is made of all triplets learned, whenever somebody asks: near the
    directions of the last refresh, by one step of subspace iteration. What scores triplets before they are learned is
    made again only at versions that depend on the count alone: every one up to 6, then a fifth more each time.

    Of pairs that people call similar or not, similar ones are near pairs and dissimilar ones far pairs. One pair says
    nothing of an order, so pairs have the score 0, are no mistakes, and leave Hedge as it is. An item beside itself is
    no pair: the triplet (q, r, q) is the similar pair (q, r), (q, q, s) the dissimilar pair (q, s).

    Without the positive part A'A is ``S^-1 - T^-1``, the logarithm of how much likelier a difference is between far
    items than between near ones (KISSME, Koestinger et al., CVPR 2012).

    Departures, measured in MATHS 12: *items* begins as the catalogue's variances; lambda falls with the root of the
    count, ``min(0.8 sqrt(d / n), 3)`` of the mean variance of near pairs; pairs beyond 4 for each item that came up
    count for neither; coordinates with a variance below 0.3 lambda are left out, so few triplets make a small problem,
    and so are the last directions, those with 0.005 of what all b exceed 1 by together; items far out count with a
    bounded length; embeddings have unit length; the plain coordinates fade out beside the learned ones with the share
    ``5 / (5 + n)``, and are dropped below 0.005. There is no expert for each modality: from some hundred triplets on,
    one for all is level with the best of those. It is at its best on the catalogue's mapped coordinates. On plain
    features with few triplets LOMDML can be ahead, and is if the classes lie along very few directions.

    Parameters
    ----------
    dims
        Dimension of each modality.
    rank
        Principal coordinates that are kept, at most 4,096: ``d = min(rank, dimensions, items in the sample - 1)``;
        fewer if items do not vary along them; with ``"coordinates"`` ``min(rank, dimensions)``. Without effect if
        ``init`` is arrays.
    memory
        Triplets over which the sums fade, >= 1; 0 never forgets. Similar pairs alone make what near pairs sum up to
        fade, dissimilar ones what far pairs do.
    init
        ``"pca"``; ``"coordinates"`` if the features are principal coordinates already, as a catalogue's mapped ones
        are; or arrays ``mean`` (D,), ``basis`` (d, D) with orthonormal rows and ``deviations`` (d,), D being the
        dimensions of all modalities together. A ``basis`` (0, D) stands for the identity.
    dtype
        ``"float32"`` or ``"float64"``, of the coordinates and of what is served; sums are float64.
    seed
        Of the sample of items.

    Examples
    --------
    >>> import numpy as np
    >>> draw = np.random.default_rng(0)
    >>> label = draw.integers(0, 3, 300)
    >>> features = {"good": np.eye(3)[label] + draw.normal(0, 0.5, (300, 3)), "noise": draw.normal(0, 1, (300, 8))}
    >>> same, other = (np.array([draw.choice(np.flatnonzero(test(label, c))) for c in label])
    ...                for test in (np.equal, np.not_equal))
    >>> model = DCA(dims={"good": 3, "noise": 8})
    >>> model.learn_many(np.stack([np.arange(300), same, other], axis=1), features).mistakes
    70
    >>> DCA.from_bytes(model.to_bytes()).version
    300
    """

    name: ClassVar[str] = "dca"
    accepts: ClassVar[frozenset[str]] = frozenset({"triplet", "pair"})
    width: ClassVar[int] = 3
    coordinates: ClassVar[str] = "mapped"
    on_mapped: ClassVar[Mapping[str, Any]] = {"init": "coordinates"}
    # The last metric that was made, and its version.
    _newest: tuple[int, CosineMetric] | None = None

    def __init__(
        self,
        dims: Mapping[str, int],
        rank: int = 512,
        memory: float = 0,
        init: str | Mapping[str, ArrayLike] = "pca",
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        self.dims = dims
        self.rank = rank
        self.memory = memory
        self.init = init
        self.dtype = dtype
        self.seed = seed
        self._prepare()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"dims": {"a": 4, "b": 3}, "rank": 5}

    def _check(self) -> None:
        fits = whole(self.rank) and 1 <= self.rank <= MOST
        expect(fits, "rank", self.rank, f"a whole number from 1 to {MOST}")
        fades = number(self.memory) and (self.memory == 0 or self.memory >= 1)
        expect(fades, "memory", self.memory, "a number of triplets of at least 1, or 0 to never forget")
        if isinstance(self.init, str):
            expect(self.init in STARTS, "init", self.init, "'pca', 'coordinates' or arrays")
            return
        expect(isinstance(self.init, Mapping), "init", self.init, "'pca', 'coordinates' or arrays")
        expect(set(self.init) == set(START), "init", sorted(self.init), f"arrays for {', '.join(START)}")
        arrays = {name: np.asarray(array) for name, array in self.init.items()}
        D, d = sum(self.dims.values()), len(np.atleast_1d(arrays["deviations"]))
        directions = 0 if d == D and not len(np.atleast_1d(arrays["basis"])) else d
        for name, shape in {"mean": (D,), "basis": (directions, D), "deviations": (d,)}.items():
            expect(
                arrays[name].shape == shape and 0 < d <= min(MOST, D), f"init[{name!r}]", arrays[name].shape, str(shape)
            )
        try:
            check_axes(arrays["basis"], arrays["deviations"])
        except ValueError as error:
            raise ParameterError(f"init: {error}") from error

    def _sampled(self, features: Mapping[str, Array]) -> dict[str, Array]:
        return STARTS[str(self.init)]({name: features[name] for name in self.dims}, self.rank, self.seed)

    def _begin(self, start: Mapping[str, Array]) -> CovarianceEngine:
        return CovarianceEngine(self.dims, {name: start[name] for name in START}, float(self.memory))

    def _shapes(self, tensors: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        deviations, basis, D = tensors.get("deviations"), tensors.get("basis"), sum(self.dims.values())
        if deviations is None or deviations.ndim != 1 or not len(deviations):
            raise CorruptError("state lacks the deviations of its coordinates")
        d = len(deviations)
        directions = len(basis) if basis is not None and basis.ndim == 2 else d
        if directions not in (d, 0) or d > D or (not directions and d != D):
            raise CorruptError(f"state of {directions} directions for {d} coordinates of {D} numbers")
        triangles = dict.fromkeys(SYMMETRIC, (d * (d + 1) // 2,))
        return {"mean": (D,), "basis": (directions, D), "deviations": (d,), **triangles}

    def learn_many(
        self, rows: ArrayLike, features: Mapping[str, Array], similar: ArrayLike | None = None, **kw: Any
    ) -> Outcome:
        """Learn triplets, or pairs, in order, all of them or none.

        Parameters
        ----------
        rows : (T, 3) or (T, 2)
            Row numbers of query, relevant, irrelevant; or, if ``similar`` is given, of a pair's items.
        features
            Matrices (n, d_i) a modality, whole: memory maps will do, only touched rows are read and cast.
        similar : scalar or (T,)
            Of pairs: True for each near one, False for each far one.

        Returns
        -------
        ``scores`` are ``D(q, r) - D(q, s)``, positive for a triplet in the wrong order; 0 for a pair, and for a triplet
        that names an item beside itself, because one pair alone says nothing of an order.

        Raises
        ------
        FeedbackError
            A row out of range or with values that are not finite (``row`` says which), features that do not fit. The
            state is as before.
        StartError
            On the first call, features without a row, or with values that are not finite.
        """
        expect(not kw, "learn_many", sorted(kw), "triplets or pairs, features, and whether pairs are similar")
        if similar is None:
            return self._learn(rows, features)
        pairs = check_rows(rows, 2, check_features(features, self.dims))
        left, right = pairs.T
        near = signs(similar, len(pairs)) > 0
        return self._learn(np.stack([left, np.where(near, right, left), np.where(near, left, right)], axis=1), features)

    def begin_from(self, metric: Metric, version: int) -> None:
        """Serve what another DCA learned from the same items, until what is learned here is better (MATHS 15).

        Parameters
        ----------
        metric
            What the other one served; this learner keeps it, and never looks at the other one again.
        version
            The other one's then.

        Raises
        ------
        ParameterError
            It is no metric of a DCA of the same dimensions, parameters and items; or something was learned already.
        """
        engine: CovarianceEngine = self._started("begin_from")
        expect(engine.version == 0 and engine.parent is None, "begin_from", engine.version, "a learner at its start")
        fits = isinstance(metric, CosineMetric) and list(metric.dims.items()) == list(self.dims.items())
        expect(fits, "begin_from", metric.dims, f"a metric of DCA of the dimensions {dict(self.dims)}")
        assert isinstance(metric, CosineMetric)
        try:
            engine.parent = Parent.of(metric, version, engine.state.mean, engine.state.basis)
        except ValueError as error:
            raise ParameterError(f"begin_from: this metric cannot be a parent: {error}") from error
        self._newest = None

    @property
    def parent(self) -> tuple[CosineMetric, int] | None:
        """What it began from, and the version of that; None if it began from nothing."""
        engine: CovarianceEngine | None = self._engine
        if engine is None or engine.parent is None:
            return None
        experts = engine.parent.experts(engine.state.basis)
        matrices = {name: matrix for name, (_, matrix) in experts.items()}
        shares = {name: share for name, (share, _) in experts.items()}
        return CosineMetric(self.dims, engine.state.mean, matrices, shares), int(engine.parent.version[0])

    @property
    def metric(self) -> CosineMetric:
        """What is served, made of every triplet learned: once a version, in about a third of the time of a refresh."""
        engine: CovarianceEngine = self._started("metric")
        if self._newest is None or self._newest[0] != engine.version:
            experts = engine.served()
            shares = {name: share for name, (share, _) in experts.items()}
            matrices = {name: matrix for name, (_, matrix) in experts.items()}
            self._newest = engine.version, CosineMetric(self.dims, engine.state.mean, matrices, shares)
        return self._newest[1]

    @property
    def matrices(self) -> dict[str, Array]:
        """``near`` (d, d): covariance of near pairs in principal coordinates, open block included."""
        engine: CovarianceEngine = self._started("matrices")
        found = engine.moments()
        return {"near": symmetric(found.near) / (found.sums[0] or 1.0)}

    @property
    def hedge_loss(self) -> float:
        """Loss of the two learned experts as weighed, from 0 to 1 a triplet."""
        return float(self._engine.hedge_loss) if self._engine else 0.0

    @property
    def hedge_loss_bound(self) -> float:
        """What it can at most be if nothing fades (MATHS 12 (h)); infinite with a ``memory``, now or before."""
        return float(self._engine.hedge_loss_bound) if self._engine and not self.memory else math.inf

    @property
    def figures(self) -> dict[str, float]:
        """``shrinkage``: variance added to each coordinate of near pairs, as a share of their mean one (MATHS 12).

        ``parent_share``: what the parent counts for, if there is one (MATHS 15).
        """
        engine: CovarianceEngine | None = self._engine
        if engine is None:
            return {}
        shared = {"parent_share": engine.parent.share(engine.version)} if engine.parent else {}
        return {"shrinkage": engine.shrinkage, **shared}

    @property
    def shares(self) -> dict[str, float]:
        """Share of each expert in what is served: ``plain``, ``items``, ``far``, ``parent items``, ``parent far``.

        One without directions, or with a share below 0.005, is left out.
        """
        return self.metric.shares


def start_from_pairs(pairs: ArrayLike, features: Mapping[str, Array], **hyperparameters: Any) -> DCA:
    """A learner that knows these near pairs, as if each had been the query and relevant item of a triplet.

    This is the batch form of DCA: its sums are all it learns. Nothing is scored, so it has no mistakes, and nobody says
    what is far: *far* is *items* at first, and takes on far pairs by their share as triplets come. Parts of a long log
    may be summed apart, from the same features, and added up by :func:`merge`.

    Parameters
    ----------
    pairs : (n, 2)
        Row numbers of two items that are alike, n >= 1; the oldest first, which matters only with a ``memory``.
    features
        Matrices (m, d_i) a modality: what the coordinates are made of, and what the rows number.
    hyperparameters
        Of :class:`DCA`, ``dims`` left out.

    Raises
    ------
    FeedbackError
        No pair, a row out of range, values that are not finite.
    StartError, ParameterError
        As for :class:`DCA`.

    Examples
    --------
    >>> import numpy as np
    >>> features = {"x": np.random.default_rng(0).normal(0, 1, (50, 4))}
    >>> pairs = np.arange(40).reshape(20, 2)
    >>> merge(start_from_pairs(pairs[:9], features), start_from_pairs(pairs[9:], features)).version
    20
    """
    dims = {name: int(np.shape(x)[1]) for name, x in features.items()}
    learner = DCA(dims, **hyperparameters)
    checked = check_rows(pairs, 2, check_features(features, dims))
    if not len(checked):
        raise FeedbackError("start_from_pairs got no pair, expected at least one")
    learner.start(features)
    rows, matrices = tables(checked, features, list(dims), np.dtype(learner.dtype))
    learner._started("start_from_pairs").add_pairs(rows, matrices, checked)
    return learner


def merge(one: DCA, other: DCA) -> DCA:
    """The learner of two streams: sums, counts and all, as if it had learned both; exact up to rounding.

    With a ``memory`` the pairs of both fade from now on as if they had come at the same time. Only the scores of each
    were made with what it knew itself: ``mistakes``, and what Hedge weighs by, are the sums of both. What both learned
    before they parted counts twice: let each begin anew.

    On two machines the last digits of principal directions may differ. There, make one start and give it to both
    (``init``).

    Raises ParameterError if they have other parameters, or did not begin from the same items.
    """
    for learner in (one, other):
        expect(isinstance(learner, DCA), "merge", type(learner).__name__, "learners of class DCA")
    ours, theirs = (
        learner._get_params() | {"init": None, "dims": list(learner.dims.items())} for learner in (one, other)
    )
    expect(ours == theirs, "merge", theirs, f"learners with the same parameters, {ours}")
    left, right = one._started("merge"), other._started("merge")
    if any(not np.array_equal(getattr(left.state, name), getattr(right.state, name)) for name in START):
        raise ParameterError("merge: the two began from other items; start both from the same features")
    if not same(left.parent, right.parent):
        raise ParameterError("merge: the two have other parents; begin both from the same metric")
    both = copy.deepcopy(one)
    both._newest = None
    both._started("merge").absorb(right)
    return both
