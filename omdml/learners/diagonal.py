"""Diagonal: one weight for each coordinate or group of coordinates (RANK; LAW 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from omdml.initial import start_matrices
from omdml.learners.shared.base import Array
from omdml.learners.shared.checks import expect, is_one_of, is_whole
from omdml.learners.shared.vectors import VectorLearner
from omdml.metrics.diagonal import DiagonalMetric

if TYPE_CHECKING:
    from omdml.engines.diagonal import DiagonalEngine


class Diagonal(VectorLearner):
    """One weight for each coordinate, all modalities side by side (Lee et al., CVPR 2008, Eq. 11; Law 2015, Eq. 2.10).

    ``D(p, q) = sum_i w_i . ((p_i - q_i) o (p_i - q_i))`` with weights w_i (d_i,); ``o`` multiplies entry by entry. A
    comparison of a near pair (difference a) and a far pair (difference b) has ``v = a o a - b o b`` and ``f = w . v``.
    Each comparison changes the weights:

        w <- max(0, w - eta lam R(w) - rate [f + margin > 0] v).

    ``[...]`` is 1 if true and 0 otherwise. R(w) is ``w - mean(w)`` (variance, RANK) or ``w`` (Frobenius, LAW), with the
    mean over all weights. In the papers a regulariser occurs once in a sum over the whole batch. Here it acts at every
    comparison, so divide the papers' weight by the number of comparisons.

    Departures: the rate is capped at ``loss / |v|^2`` with ``loss = f + margin``, which never overshoots the margin,
    and ``eta lam`` at 1. The start has unit spread: random pairs have a mean D of 1.

    Each data set has three figures: mAP at the start, after 20,000 triplets, and after 20,000 triplets with the best
    fixed rate from 1e-6 to 0.1 (0.01 in every case, lam 0; seed 0, features scaled to [0, 1]): mfeat 0.814, 0.886,
    0.880; leaves100 0.869, 0.885, 0.885; yaleb 0.164, 0.507, 0.498; caltech101_20 0.621, 0.741, 0.740. With ``lam`` 0
    instead of the default, mAP differs by at most 0.002; with 0.01 it is lower by up to 0.09.

    The rate depends on the units of the features. On rows of unit norm the default does little: there (seed 0, 10,000
    triplets) ``eta=1`` has mfeat 0.879, leaves100 0.842, yaleb 0.218, caltech101_20 0.668, and the default has 0.848,
    0.817, 0.154, 0.634.

    Parameters
    ----------
    dims
        Dimension d_i of each modality, by name.
    eta
        Largest rate of a step, > 0, in units of features to the power -4; with ``step="ogd"`` the rate itself.
    lam
        Weight of the regulariser, >= 0. It acts at every comparison.
    regulariser
        ``"variance"`` draws the weights to their mean, ``"frobenius"`` to 0.
    groups
        Coordinates that share a weight, such as those of one region of a picture or page (LAW 4). For a modality: a
        number of equal consecutive groups, or the number of the group of each coordinate. Modalities that are not
        named have no groups.
    step
        ``"pa"`` (capped) or ``"ogd"`` (the papers' fixed rate).
    init
        ``"unit"``: equal weights within a modality, equal spread of all modalities, unit spread together. Or arrays
        (d_i,) of at least 0, equal within a group, used as they are.
    dtype
        ``"float32"`` or ``"float64"``.
    seed
        Seed of the sample of at most 10,000 items that scales the start.

    Examples
    --------
    >>> import numpy as np
    >>> draw = np.random.default_rng(0)
    >>> label = draw.integers(0, 3, 300)
    >>> features = {"x": np.hstack([np.eye(3)[label] + draw.normal(0, 0.5, (300, 3)), draw.normal(0, 1, (300, 3))])}
    >>> same, other = (np.array([draw.choice(np.flatnonzero(test(label, c))) for c in label])
    ...                for test in (np.equal, np.not_equal))
    >>> model = Diagonal(dims={"x": 6}, groups={"x": 2})
    >>> model.learn_many(np.stack([np.arange(300), same, other], axis=1), features).mistakes
    58
    >>> model.matrices["x"].round(2)
    array([0.71, 0.71, 0.71, 0.07, 0.07, 0.07], dtype=float32)
    """

    name: ClassVar[str] = "diagonal"
    step_changes = "weights"
    starts: ClassVar[frozenset[str]] = frozenset({"unit"})

    def __init__(
        self,
        dims: Mapping[str, int],
        eta: float = 0.01,
        lam: float = 1e-4,
        regulariser: str = "variance",
        groups: Mapping[str, int | Sequence[int]] | None = None,
        step: str = "pa",
        init: str | Mapping[str, ArrayLike] = "unit",
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        self.dims = dims
        self.eta = eta
        self.lam = lam
        self.regulariser = regulariser
        self.groups = groups
        self.step = step
        self.init = init
        self.dtype = dtype
        self.seed = seed
        self._prepare()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"dims": {"a": 4, "b": 3}}
        yield {"dims": {"a": 4, "b": 3}, "lam": 0.01, "regulariser": "frobenius", "groups": {"a": 2}}

    def _check(self) -> None:
        super()._check()
        fits = is_one_of(self.regulariser, ("variance", "frobenius"))
        expect(fits, "regulariser", self.regulariser, "'variance' or 'frobenius'")
        groups: object = self.groups or {}
        fits = isinstance(groups, Mapping) and set(groups) <= set(self.dims)
        expect(fits, "groups", groups, f"groups for some of {sorted(self.dims)}")
        for name, grouping in (self.groups or {}).items():
            check_groups(name, grouping, self.dims[name])
        if not isinstance(self.init, str):
            weights = np.concatenate([np.asarray(self.init[name]) for name in self.dims])
            expect(bool((weights >= 0).all()), "init", float(weights.min()), "weights of at least 0")
            check_shared(weights, self._group())

    def _group(self) -> Array | None:
        """Number of the weight of each coordinate, (sum d_i,), from 0 on; None if no groups were given."""
        if not self.groups:
            return None
        parts, count = [], 0
        for name, size in self.dims.items():
            group = self.groups.get(name, size)
            numbers = np.arange(size) * group // size if is_whole(group) else np.unique(group, return_inverse=True)[1]
            parts.append(numbers + count)
            count += int(numbers.max()) + 1
        return np.concatenate(parts).astype(np.int64)

    def _sampled(self, features: Mapping[str, Array]) -> dict[str, Array]:
        rows = start_matrices(features, self.dims, "identity", self.seed)
        return {name: np.diagonal(matrix) ** 2 / len(self.dims) for name, matrix in rows.items()}

    def _begin(self, start: Mapping[str, Array]) -> DiagonalEngine:
        from omdml.engines.diagonal import DiagonalEngine
        from omdml.kernels.diagonal import Rule

        exact, centred = self.step == "pa", self.regulariser == "variance"
        rule = Rule(float(self.eta), float(self.lam), exact, centred, signed=False)
        return DiagonalEngine({name: start[name] for name in self.dims}, rule, self._group())

    @property
    def metric(self) -> DiagonalMetric:
        """The metric to serve, of all that was learned so far. Raises NotStarted."""
        return DiagonalMetric(self.matrices)


def check_groups(name: str, groups: object, size: int) -> None:
    """Refuse groups that do not cover a modality's coordinates exactly."""
    if is_whole(groups):
        fits = 0 < groups <= size and size % groups == 0  # type: ignore[operator]
        expect(fits, f"groups[{name!r}]", groups, f"a number of groups that divides {size}")
    else:
        fits = isinstance(groups, Sequence | np.ndarray) and len(groups) == size and all(map(is_whole, groups))
        expect(fits, f"groups[{name!r}]", groups, f"a whole number, or one for each of {size} coordinates")


def check_shared(weights: Array, group: Array | None) -> None:
    """Refuse weights (sum d_i,) that differ within a group."""
    if group is not None:
        first = np.unique(group, return_index=True)[1]
        differs = np.flatnonzero(weights != weights[first][group])
        expect(not differs.size, "init", weights[differs[:1]].tolist(), "equal weights within a group")
