"""DCA: directions in which near pairs differ less than other items, from second moments only (MATHS 12)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from omdml.errors import CorruptError, ParameterError
from omdml.initial import AXES, check_axes, check_orthonormal, coordinates_start, principal_start
from omdml.learners.shared.base import Array, Learner, Outcome
from omdml.learners.shared.checks import check_rows, expect, is_number, is_whole
from omdml.learners.shared.pairs import signs
from omdml.learners.shared.triplets import weights
from omdml.metrics import Metric
from omdml.metrics.base import check_features
from omdml.metrics.cosine import CosineMetric

if TYPE_CHECKING:
    from omdml.engines.second_order.covariance import CovarianceEngine

MOST_COORDINATES = 4_096
# Before this number of the format all sums were of principal coordinates.
SUMS_OF_ITEMS = 5
# The functions that compute the arrays that a learner starts from, by the name in ``init``.
STARTS = {"pca": principal_start, "coordinates": coordinates_start}


class DCA(Learner):
    """The default learner: online discriminative component analysis of near pairs (after Hoi, Liu, Lyu, Ma, CVPR 2006).

    It learns from triplets and from pairs. Its metric embeds items as vectors of unit length, whose squared Euclidean
    distance is the learned one, from 0 to 4.

    All modalities side by side are one vector, in the catalogue's principal coordinates z. A triplet of query q,
    relevant item r and irrelevant item s has a *near pair* (q, r) and a *far pair* (q, s). Two metrics, the *experts*,
    share the covariance of near pairs, ``S = mean (z_q - z_r)(z_q - z_r)' / 2 + lambda I``, with lambda as below. They
    compare it with different covariances T. *items* takes the covariance of the items in near pairs; *far* takes that
    of far pairs, with lambda I added. Each expert consists of the generalised eigenvectors ``T u = b S u`` with b above
    1. With ``(x)+ = max(x, 0)``,

        A'A = W V (1 - 1/b)+ V' W,    W = S^(-1/2),    W T W = V diag(b) V',

    and it embeds an item as ``A z``, scaled to length 1.

    Hedge (MATHS 12 (h)) gives each expert its weight by how it ordered the triplets before it learned them. If an
    expert was made from other answers to the same search, Hedge leaves the triplet out. The loss is linear in the
    difference of the distances, so wrong answers make it larger for both. *items* is better if many answers are wrong,
    because a swap of relevant and irrelevant hardly changes which items are clicked. *far* is better if people answer
    about pages that the metric itself ordered: there all items look alike to the metric, in near pairs and in far
    pairs.

    Learning only adds to sums. Two metrics are computed from these. The one that scores triplets before they are
    learned is computed again (a *refresh*) only at certain versions: at each one up to 6, then each time the number of
    triplets has grown by a fifth, and with a ``memory`` after a tenth of it at the latest. :attr:`metric`, which is
    served, is computed when somebody asks for it, and every triplet counts in it. If there are many more coordinates
    than directions, it takes one step of subspace iteration from the directions of the last refresh. The expert with
    the smaller weight stays as the last refresh made it until new triplets matter for it (MATHS 12 (k)).

    If people say of pairs that they are similar or not, similar pairs are near pairs and dissimilar pairs far pairs. A
    single pair has no order, so pairs have the score 0, are never mistakes, and tell Hedge nothing. An item with itself
    is no pair: the triplet (q, r, q) is the similar pair (q, r), and (q, q, s) the dissimilar pair (q, s).

    A ranking of R relevant and I irrelevant items is R I triplets, but not as many separate opinions. So workers give
    each of these triplets the ``weight`` ``1 / sqrt(R I)`` in the sums, and each of the n triplets of a page
    ``1 / sqrt(n)``. Hedge, ``version`` and ``memory`` count triplets, each as 1.

    If b below 1 were kept, too, A'A would be ``S^-1 - T^-1``. ``y'(S^-1 - T^-1) y`` is, up to a factor and a constant,
    the logarithm of a likelihood ratio: how much likelier the difference y is between far items than between near items
    (KISSME, Koestinger et al., CVPR 2012).

    Departures, measured in MATHS 12:

    - The T of *items* begins as the catalogue's variances. It also stands in for far pairs if there are fewer of these
      than near pairs.
    - lambda is ``min(0.8 sqrt(d / n), 3)`` times the mean variance of near pairs. n is the effective number of near
      pairs (Kish), and at most 4 for each item that came up.
    - Coordinates with a variance below 0.3 lambda are left out. So few triplets make a small problem. The last
      directions are left out too, if together they have at most 0.005 of the sum of all b - 1.
    - Very long differences are shortened, and embeddings have unit length.
    - The plain coordinates are a third expert, with the share ``5 / (5 + w)``. w is the sum of the near pairs' weights.
      A share below 0.005 counts as 0.
    - There is no expert for each modality. From 1,000 triplets on, one expert for all modalities is as good as the best
      of those.

    DCA is at its best on the catalogue's mapped coordinates. On plain features LOMDML can be better after few triplets,
    and it is better if the classes lie along very few directions.

    Parameters
    ----------
    dims
        Dimension d_i of each modality, by name.
    rank
        Most principal coordinates, 1 to 4,096. With ``init="pca"`` there are
        ``d = min(rank, dimensions, items in the sample - 1)``, and fewer if items do not vary along them. With
        ``"coordinates"`` there are ``min(rank, dimensions)``. If ``init`` is arrays, ``rank`` has no effect.
    memory
        Number of triplets over which the sums fade, at least 1, or 0: then they never fade. Each triplet multiplies
        them by ``1 - 1 / memory``. A similar pair makes only the sums of near pairs fade, and a dissimilar pair only
        those of far pairs.
    init
        ``"pca"`` computes principal coordinates from a sample of the features. ``"coordinates"`` takes the features as
        they are: a catalogue's mapped coordinates are principal ones already. Or give the arrays ``mean`` (D,),
        ``basis`` (d, D) with orthonormal rows, and ``deviations`` (d,), with D the dimensions of all modalities
        together. A ``basis`` (0, D) stands for the identity.
    dtype
        ``"float32"`` or ``"float64"``, for coordinates and the served metric. Sums are always float64.
    seed
        Seed of the sample of items that the start is computed from: at most 10,000, or 2,000 if D is above 2,000.

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
    >>> model.metric.embed(features).shape  # a row for each item
    (300, 19)
    >>> DCA.from_bytes(model.to_bytes()).version
    300
    """

    name: ClassVar[str] = "dca"
    accepts: ClassVar[frozenset[str]] = frozenset({"triplet", "pair"})
    width: ClassVar[int] = 3
    columns: ClassVar[tuple[str, ...]] = ("weight",)
    coordinates: ClassVar[str] = "mapped"
    on_mapped: ClassVar[Mapping[str, Any]] = {"init": "coordinates"}
    # It has no rate.
    step_changes = None
    # The newest metric that was computed, and its version.
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
        fits = is_whole(self.rank) and 1 <= self.rank <= MOST_COORDINATES
        expect(fits, "rank", self.rank, f"a whole number from 1 to {MOST_COORDINATES}")
        fades = is_number(self.memory) and (self.memory == 0 or self.memory >= 1)
        expect(fades, "memory", self.memory, "a number of triplets of at least 1, or 0 to never forget")
        if isinstance(self.init, str):
            expect(self.init in STARTS, "init", self.init, "'pca', 'coordinates' or arrays")
            return
        expect(set(self.init) == set(AXES), "init", sorted(self.init), f"arrays for {', '.join(AXES)}")
        arrays = {name: np.asarray(array) for name, array in self.init.items()}
        D, d = sum(self.dims.values()), len(np.atleast_1d(arrays["deviations"]))
        directions = 0 if d == D and not len(np.atleast_1d(arrays["basis"])) else d
        for name, shape in {"mean": (D,), "basis": (directions, D), "deviations": (d,)}.items():
            fits = arrays[name].shape == shape and 0 < d <= min(MOST_COORDINATES, D)
            expect(fits, f"init[{name!r}]", arrays[name].shape, f"the shape {shape}")
        try:
            check_axes(arrays["basis"], arrays["deviations"])
            check_orthonormal(arrays["basis"])
        except ValueError as error:
            raise ParameterError(f"init: {error}") from error

    def _sampled(self, features: Mapping[str, Array]) -> dict[str, Array]:
        return STARTS[str(self.init)](features, self.rank, self.seed)

    def _begin(self, start: Mapping[str, Array]) -> CovarianceEngine:
        from omdml.engines.second_order.covariance import CovarianceEngine

        return CovarianceEngine(self.dims, {name: start[name] for name in AXES}, float(self.memory))

    def _shapes(self, tensors: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        from omdml.engines.second_order.state import SYMMETRIC

        deviations, basis, D = tensors.get("deviations"), tensors.get("basis"), sum(self.dims.values())
        if deviations is None or deviations.ndim != 1 or not len(deviations):
            raise CorruptError("state lacks the deviations of its coordinates")
        d = len(deviations)
        directions = len(basis) if basis is not None and basis.ndim == 2 else d
        if directions not in (d, 0) or d > D or (not directions and d != D):
            raise CorruptError(f"state has {directions} directions for {d} coordinates of items of {D} numbers")
        triangles = dict.fromkeys(SYMMETRIC, (d * (d + 1) // 2,))
        return {"mean": (D,), "basis": (directions, D), "deviations": (d,), **triangles}

    def _convert(self, number: int) -> None:
        if number < SUMS_OF_ITEMS:
            self._started("from_bytes").turn_older_sums()

    def learn_many(
        self,
        rows: ArrayLike,
        features: Mapping[str, Array],
        similar: ArrayLike | None = None,
        weight: ArrayLike = 1.0,
        **kw: Any,
    ) -> Outcome:
        """Learn triplets, or pairs, in order, all of them or none.

        Parameters
        ----------
        rows : (T, 3) or (T, 2)
            Row numbers of query, relevant and irrelevant item, or of the two items of a pair if ``similar`` is given.
        features
            One matrix (n, d_i) for each modality, with all items. Memory maps are fine: only the rows that are named
            are read and cast.
        similar : scalar or (T,)
            For pairs: True for a near pair, False for a far pair.
        weight : scalar or (T,)
            What each comparison counts for in the sums, from 1e-6 to 1; see :func:`omdml.comparisons.weights`.

        Returns
        -------
        An Outcome. Its ``scores`` (T,) are ``D(q, r) - D(q, s)``, which is positive for a triplet in the wrong order.
        It is 0 for a pair, and for a triplet that names an item twice, because a single pair has no order.

        Raises
        ------
        FeedbackError
            A row or a weight is out of range, values are not finite or too large, or features do not fit ``dims``.
            ``row`` is the index of the comparison. Nothing was learned.
        StartError
            On the first call: the features have no row, or values that are not finite. Nothing was learned.
        ParameterError
            A keyword is unknown.
        """
        expect(
            not kw,
            "other arguments of learn_many",
            sorted(kw),
            "triplets or pairs, features, whether pairs are similar, and weights",
        )
        if similar is not None:
            left, right = check_rows(rows, 2, check_features(features, self.dims)).T
            near = signs(similar, len(left)) > 0
            rows = np.stack([left, np.where(near, right, left), np.where(near, left, right)], axis=1)
        return self._learn(rows, features, weights(weight, rows))

    def begin_from(self, metric: Metric, version: int) -> None:
        """Serve what another DCA learned from the same items, fit it, and replace it by something better (MATHS 15).

        Parameters
        ----------
        metric
            The other learner's metric. This learner keeps it, and does not follow the other one later.
        version
            The version of that metric.

        Raises
        ------
        ParameterError
            The metric is not one of a DCA with the same dimensions, parameters and items; ``version`` is no whole
            number of at least 0; or this learner has learned something already.
        """
        engine: CovarianceEngine = self._started("begin_from")
        learned = f"version {engine.version}{' and a parent' if engine.parent else ''}"
        begins = engine.version == 0 and engine.parent is None
        expect(begins, "begin_from", learned, "a learner at its start: version 0, no parent")
        expect(is_whole(version) and version >= 0, "version", version, "a whole number of at least 0")
        expected = f"a metric of DCA of the dimensions {dict(self.dims)}"
        if not isinstance(metric, CosineMetric):
            raise ParameterError(f"begin_from: got {type(metric).__name__}, expected {expected}")
        expect(list(metric.dims.items()) == list(self.dims.items()), "begin_from", metric.dims, expected)
        try:
            engine.begin_from(metric, version)
        except ValueError as error:
            raise ParameterError(f"begin_from: this metric cannot be a parent: {error}") from error
        self._newest = None

    def learning_on(self, **hyperparameters: Any) -> Self:
        """As for :class:`Learner`. If this learner has a ``memory``, ``hedge_loss_bound`` is infinite from now on."""
        twin = super().learning_on(**hyperparameters)
        engine: CovarianceEngine = twin._started("learning_on")
        engine.refresh_in_time()
        if self.memory:
            engine.unbound_hedge_loss()
        return twin

    @property
    def parent(self) -> tuple[CosineMetric, int] | None:
        """The metric that this learner began from, and its version; None if it began from nothing."""
        engine: CovarianceEngine | None = self._engine
        if engine is None or engine.parent is None:
            return None
        return self._metric_of(engine.parent.experts(engine.state.basis)), int(engine.parent.version[0])

    @property
    def metric(self) -> CosineMetric:
        """The metric to serve, from all triplets learned. It is computed once per version. Raises NotStarted."""
        engine: CovarianceEngine = self._started("metric")
        if self._newest is None or self._newest[0] != engine.version:
            self._newest = engine.version, self._metric_of(engine.served())
        return self._newest[1]

    def _metric_of(self, experts: Mapping[str, tuple[float, Array]]) -> CosineMetric:
        """The metric of these experts, given the share and the matrix (r, D) of each."""
        shares = {name: share for name, (share, _) in experts.items()}
        matrices = {name: matrix for name, (_, matrix) in experts.items()}
        return CosineMetric(self.dims, self._engine.state.mean, matrices, shares)

    @property
    def matrices(self) -> dict[str, Array]:
        """``near`` (d, d): covariance of all near pairs so far, in principal coordinates, without lambda I."""
        engine: CovarianceEngine = self._started("matrices")
        return {"near": engine.near_covariance()}

    @property
    def hedge_loss(self) -> float:
        """Sum over triplets of the weighted mean of the two learned experts' losses, which lie from 0 to 1."""
        return float(self._engine.hedge_loss) if self._engine else 0.0

    @property
    def hedge_loss_bound(self) -> float:
        """Upper bound of ``hedge_loss`` (MATHS 12 (h)); infinite if a ``memory`` is set, or was set before."""
        return float(self._engine.hedge_loss_bound) if self._engine and not self.memory else math.inf

    @property
    def figures(self) -> dict[str, float]:
        """``shrinkage``: variance added to each coordinate of near pairs, as a share of their mean variance (MATHS 12).

        ``parent_share``: the share of the parent, fitted or not, if there is one (MATHS 15).
        """
        engine: CovarianceEngine | None = self._engine
        if engine is None:
            return {}
        shared = {"parent_share": engine.parent.share()} if engine.parent else {}
        return {"shrinkage": engine.shrinkage, **shared}

    @property
    def shares(self) -> dict[str, float]:
        """Share of each expert of the served metric: ``plain``, ``items``, ``far``.

        With a parent there are also ``parent items`` and ``parent far``, as the parent had them, and ``fitted items``
        and ``fitted far``, which are fitted to this learner's own near pairs. An expert without directions, or with a
        share below 0.005, is left out.
        """
        return self.metric.shares
