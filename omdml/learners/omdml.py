"""OMDML: a full matrix for each modality, and weights of the modalities (OMDML, Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import ArrayLike

from omdml.learners.shared.base import Array
from omdml.learners.shared.checks import check_rate
from omdml.learners.shared.full_matrices import FullMatrixLearner
from omdml.learners.shared.hedge import HedgeLearner

if TYPE_CHECKING:
    from omdml.engines.full import FullEngine


class OMDML(HedgeLearner, FullMatrixLearner):
    """Online multi-modal distance metric learning (Wu et al., TKDE 2016, Algorithm 1).

    ``D(p, q) = sum_i theta_i (p_i - q_i)' M_i (p_i - q_i)``, with a matrix M_i (d_i, d_i) and a weight theta_i for each
    modality i. A comparison of a near pair (difference a) and a far pair (difference b) has
    ``f_i = a_i' M_i a_i - b_i' M_i b_i`` and ``f = sum_i theta_i f_i``. If ``f + gamma margin > 0``, it is *gated*:
    modalities with ``f_i > 0`` lose weight (Hedge), and those with ``f_i + margin > 0`` take the step::

        M_i <- PSD(M_i - tau (a_i a_i' - b_i b_i')),    tau = min(C, (f_i + margin) / |a_i a_i' - b_i b_i'|^2).

    PSD sets negative eigenvalues to 0. The results are the paper's, at a lower price. An update causes at most one
    negative eigenvalue, which a bound rules out or a scalar equation finds (:mod:`omdml.engines.spectral`). So no
    update needs a dense eigendecomposition. Quadruplets are learned like triplets (LAW 2.1). Departures: starts have
    unit spread, and Hedge forgets, as in :class:`LOMDML`.

    The default C was chosen by mAP after 5,000 triplets with C = 0.01, 0.1 and 1 (means of two seeds): caltech101_20
    0.793, 0.794, 0.788; mfeat 0.928, 0.928, 0.923; leaves100 0.893, 0.916, 0.924. No C diverges: the step never
    overshoots the margin. After 50,000, C = 0.1: mfeat 0.947, leaves100 0.943.

    Parameters
    ----------
    dims
        Dimension d_i of each modality, by name.
    C
        Largest rate of a step, > 0, in units of features to the power -4.
    beta
        Factor on the weight of a modality with ``f_i > 0`` at each gated comparison, in (0, 1].
    memory
        Number of gated comparisons over which Hedge's losses fade, >= 1, or 0: then they never fade, as in the paper.
    gamma
        How many times its own margin is added to a comparison's f to decide whether it is gated.
    mu
        Weight of the Fantope regulariser (LAW 3.2), >= 0. A step adds ``mu F_i`` to ``a_i a_i' - b_i b_i'``, F_i being
        the projector on the eigenvectors of the ``k`` smallest eigenvalues of M_i. If ``mu`` or ``trace`` is above 0,
        each update costs an eigendecomposition.
    k
        Number of eigenvalues that ``mu`` presses down, in a modality of fewer dimensions all of them. At least 1 if
        ``mu`` is above 0, and without effect if it is 0.
    trace
        Weight of the trace norm, >= 0. A step adds ``trace I``.
    refresh
        Number of updates after which F_i is computed again; 1 is exact.
    rank
        Rank of the start. None: all dimensions of a modality.
    init
        ``"identity"`` (the paper's), ``"pca"``, ``"wpca"``, ``"gaussian"``: M_i = W'W of these rows W, at unit spread,
        as in :class:`LOMDML`; or positive semi-definite arrays (d_i, d_i), used as they are.
    dtype
        ``"float32"`` or ``"float64"``.
    seed
        Seed of the sample of at most 10,000 items that the start is computed from, and of Gaussian rows.

    Examples
    --------
    >>> import numpy as np
    >>> from omdml.builders import from_labels
    >>> draw = np.random.default_rng(0)
    >>> label = draw.integers(0, 3, 300)
    >>> features = {"good": np.eye(3)[label] + draw.normal(0, 0.5, (300, 3)), "noise": draw.normal(0, 1, (300, 8))}
    >>> model = OMDML(dims={"good": 3, "noise": 8})
    >>> model.learn_many(from_labels(label, 300, seed=0), features).mistakes
    72
    >>> model.updates
    197
    >>> {name: round(weight, 2) for name, weight in model.weights.items()}
    {'good': 0.51, 'noise': 0.49}
    """

    name: ClassVar[str] = "omdml"

    def __init__(
        self,
        dims: Mapping[str, int],
        C: float = 0.1,
        beta: float = 0.999,
        memory: float = 10_000,
        gamma: float = 1.0,
        mu: float = 0.0,
        k: int = 0,
        trace: float = 0.0,
        refresh: int = 1,
        rank: int | None = None,
        init: str | Mapping[str, ArrayLike] = "identity",
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        self.dims = dims
        self.C = C
        self.beta = beta
        self.memory = memory
        self.gamma = gamma
        self.mu = mu
        self.k = k
        self.trace = trace
        self.refresh = refresh
        self.rank = rank
        self.init = init
        self.dtype = dtype
        self.seed = seed
        self._prepare()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"dims": {"a": 4, "b": 3}}

    def _check(self) -> None:
        super()._check()
        check_rate("C", self.C)
        self._check_hedge()

    def _begin(self, start: Mapping[str, Array]) -> FullEngine:
        from omdml.engines.full import FullEngine
        from omdml.kernels.full import Rule

        rule = Rule(float(self.C), float(self.gamma), math.log(self.beta), self._keep, exact=True, joint=False)
        return FullEngine({name: start[name] for name in self.dims}, rule, self.mu, self.k, self.trace, self.refresh)

    def _weights(self, engine: FullEngine) -> dict[str, float]:
        return dict(zip(engine.names, engine.weights.tolist(), strict=True))
