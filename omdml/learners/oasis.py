"""OASIS: a bilinear similarity for each modality, all with the same weight (the baseline of OMDML)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from omdml.errors import StartError
from omdml.initial import NOISE, SAMPLE
from omdml.learners.shared.base import Array
from omdml.learners.shared.checks import check_rate, check_shapes, expect
from omdml.learners.shared.triplets import TripletLearner
from omdml.metrics.bilinear import BilinearMetric

if TYPE_CHECKING:
    from omdml.engines.bilinear import BilinearEngine

# A sample is read in this many parts, so that its rows are never in memory all at once.
PARTS = 10


class OASIS(TripletLearner):
    """Online learning of bilinear similarities (Chechik et al., JMLR 2010), each modality by itself (OASIS-U of OMDML).

    The similarity of an item x to a query q is the mean over modalities of ``S_i(q, x) = q_i' W_i x_i``. W_i (d_i, d_i)
    is neither symmetric nor positive. A triplet (query q, relevant r, irrelevant s) has ``f = S(q, s) - S(q, r)``.
    Every modality in which ``loss_i = 1 - S_i(q, r) + S_i(q, s)`` is above 0 takes the step::

        W_i <- W_i + tau q_i (r_i - s_i)',    tau = min(C, loss_i / |q_i (r_i - s_i)'|^2).

    This step never overshoots its margin.

    Departure: the paper starts at W_i = I. There a margin of 1 is small in one modality and large in another. Ours is I
    scaled so that ``S_i(q, r) - S_i(q, s)`` of random triplets has mean square 1. Each data set has the mAP at the
    start and after 50,000 triplets (seed 0, features scaled to [0, 1], C = 0.01); the figures in brackets are those
    with the paper's start: mfeat 0.537, 0.921 (0.549, 0.883); leaves100 0.369, 0.736 (0.060, 0.728); caltech101_20
    0.522, 0.802 (0.400, 0.808); yaleb 0.120, 0.599 (0.140, 0.612). The means of the four sets with C = 0.003, 0.01,
    0.03, 0.1 are 0.753, 0.762, 0.755, 0.748. On rows of unit norm the default learns little. There (seed 0, 10,000
    triplets) C = 1 has mfeat 0.901, leaves100 0.853, yaleb 0.347 and caltech101_20 0.772, and the default has 0.791,
    0.827, 0.173 and 0.686.

    Parameters
    ----------
    dims
        Dimension d_i of each modality, by name.
    C
        Largest rate of a step, > 0, in units of features to the power -4.
    init
        ``"identity"``, scaled as described above, or arrays (d_i, d_i), used as they are.
    dtype
        ``"float32"`` or ``"float64"``.
    seed
        Seed of the 10,000 random triplets that scale the start.

    Examples
    --------
    >>> import numpy as np
    >>> draw = np.random.default_rng(0)
    >>> label = draw.integers(0, 3, 300)
    >>> features = {"good": np.eye(3)[label] + draw.normal(0, 0.5, (300, 3)), "noise": draw.normal(0, 1, (300, 8))}
    >>> same, other = (np.array([draw.choice(np.flatnonzero(test(label, c))) for c in label])
    ...                for test in (np.equal, np.not_equal))
    >>> model = OASIS(dims={"good": 3, "noise": 8})
    >>> model.learn_many(np.stack([np.arange(300), same, other], axis=1), features).mistakes
    74
    >>> model.matrices["good"].round(1)
    array([[ 1. , -0. , -0.2],
           [-0.2,  0.9, -0.2],
           [-0.2, -0.2,  0.9]], dtype=float32)
    """

    name: ClassVar[str] = "oasis"
    step_changes = "similarity"
    no_embedding = "its similarity is bilinear, and no distance between embeddings"

    def __init__(
        self,
        dims: Mapping[str, int],
        C: float = 0.01,
        init: str | Mapping[str, ArrayLike] = "identity",
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        self.dims = dims
        self.C = C
        self.init = init
        self.dtype = dtype
        self.seed = seed
        self._prepare()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"dims": {"a": 4, "b": 3}}

    def _check(self) -> None:
        check_rate("C", self.C)
        if isinstance(self.init, str):
            expect(self.init == "identity", "init", self.init, "'identity' or arrays")
        else:
            check_shapes(self.init, self._shapes({}))

    def _sampled(self, features: Mapping[str, Array]) -> dict[str, Array]:
        draw = np.random.default_rng(self.seed)
        count = len(next(iter(features.values())))
        triplets = draw.integers(0, count, (SAMPLE, 3))
        return {name: unit_identity(name, features[name], triplets) for name in self.dims}

    def _begin(self, start: Mapping[str, Array]) -> BilinearEngine:
        from omdml.engines.bilinear import BilinearEngine

        return BilinearEngine({name: start[name] for name in self.dims}, float(self.C))

    def _shapes(self, tensors: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        return {name: (size, size) for name, size in self.dims.items()}

    @property
    def metric(self) -> BilinearMetric:
        """The metric to serve, of all that was learned so far. Raises NotStarted."""
        return BilinearMetric(self.matrices)

    @property
    def matrices(self) -> dict[str, Array]:
        """W_i (d_i, d_i) of each modality, as learned. Raises NotStarted."""
        engine: BilinearEngine = self._started("matrices")
        return dict(zip(engine.names, engine.matrices(), strict=True))


def unit_identity(name: str, features: Array, triplets: Array) -> Array:
    """I (d, d), scaled so that ``q'(r - s)`` of these triplets (T, 3) has mean square 1.

    Raises StartError if the sampled items hold a value that is not finite, or too large.
    """
    squares = sizes = 0.0
    # Overflows are detected in ``sizes`` afterwards.
    with np.errstate(over="ignore", invalid="ignore"):
        for part in np.array_split(triplets, PARTS):
            q, r, s = (np.asarray(features[part[:, column]], np.float64) for column in range(3))
            squares += float((np.einsum("ij,ij->i", q, r - s) ** 2).sum())
            sizes += float(((q**2).sum(axis=1) * ((r**2).sum(axis=1) + (s**2).sum(axis=1))).sum())
    if not np.isfinite(sizes):
        raise StartError(f"modality {name!r}: sampled items hold values that are not finite, or too large: repair them")
    if squares > NOISE * sizes:
        return np.eye(features.shape[1]) / np.sqrt(squares / len(triplets))
    warnings.warn(f"modality {name!r}: all sampled items are alike, its start stays unscaled", stacklevel=2)
    return np.eye(features.shape[1])
