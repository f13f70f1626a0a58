"""Qwise: one metric from quadruplets, whose rank a Fantope or a trace norm keeps low (LAW 2 and 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import ArrayLike

from omdml.learners.shared.base import Array
from omdml.learners.shared.checks import check_rate, check_step
from omdml.learners.shared.full_matrices import FullMatrixLearner

if TYPE_CHECKING:
    from omdml.engines.full import FullEngine


class Qwise(FullMatrixLearner):
    """Quadruplet-wise metric learning, full matrix (Law 2015, Algorithms 1 and 2), one step for each comparison.

    ``D(p, q) = sum_i (p_i - q_i)' M_i (p_i - q_i)``: one metric on all modalities side by side, without terms between
    them. A comparison of a near pair (difference a) and a far pair (difference b) has
    ``f = sum_i a_i' M_i a_i - b_i' M_i b_i``. If ``loss = f + margin`` is above 0, every modality takes the step

        M_i <- PSD(M_i - rate (mu F_i + trace I + a_i a_i' - b_i b_i')).

    PSD sets negative eigenvalues to 0. F_i is the projector on the eigenvectors of the k smallest eigenvalues of M_i.
    In the thesis, a regulariser occurs once in a sum over the whole batch. Here it acts at every comparison with a
    loss, so divide the thesis' weights by the number of these comparisons.

    Departure: the rate is capped at ``loss / sum_i |a_i a_i' - b_i b_i'|^2``, which brings the loss to zero. So no eta
    diverges: mAP after 5,000 triplets is the same for eta = 0.1, 1, 10 (means of two seeds: leaves100 0.902, mfeat
    0.888). At 0.01 leaves100 has 0.887.

    Parameters
    ----------
    dims
        Dimension d_i of each modality, by name.
    eta
        Largest rate of a step, > 0, in units of features to the power -4; with ``step="ogd"`` the rate itself.
    mu
        Weight of the Fantope regulariser, >= 0.
    k
        Number of eigenvalues of each modality that ``mu`` presses down: the rank is driven to d_i - k. If a modality
        has at most k dimensions, F_i is I and mu a trace norm. At least 1 if mu is above 0, and without effect if mu is
        0.
    trace
        Weight of the trace norm, >= 0.
    refresh
        Number of updates after which F is computed again; 1 is exact.
    step
        ``"pa"`` (capped) or ``"ogd"`` (the thesis' fixed rate).
    rank
        Rank of the start. None: all dimensions of a modality. A Fantope needs distinct eigenvalues, such as those of
        ``"pca"`` at rank d - k (LAW 3.4).
    init
        ``"identity"``, ``"pca"``, ``"wpca"``, ``"gaussian"``: M_i = W'W of these rows W, scaled so that all modalities
        together have unit spread; or positive semi-definite arrays (d_i, d_i), used as they are.
    dtype
        ``"float32"`` or ``"float64"``.
    seed
        Seed of the sample of at most 10,000 items that the start is computed from, and of Gaussian rows.

    Examples
    --------
    >>> import numpy as np
    >>> draw = np.random.default_rng(0)
    >>> x = draw.uniform(0, 1, (300, 6))
    >>> rows = draw.integers(0, 300, (2000, 4))
    >>> near, far = x[rows[:, 0]] - x[rows[:, 1]], x[rows[:, 2]] - x[rows[:, 3]]
    >>> swap = (near[:, :2] ** 2).sum(axis=1) > (far[:, :2] ** 2).sum(axis=1)  # two coordinates matter
    >>> rows[swap] = rows[swap][:, (2, 3, 0, 1)]
    >>> model = Qwise(dims={"x": 6}, mu=1.0, k=4, init="pca", rank=2)
    >>> model.learn_many(rows, {"x": x}).mistakes < model.learn_many(rows, {"x": x}).mistakes
    False
    >>> int((np.linalg.eigvalsh(model.matrices["x"]) > 1e-3).sum())
    2
    """

    name: ClassVar[str] = "qwise"

    def __init__(
        self,
        dims: Mapping[str, int],
        eta: float = 0.1,
        mu: float = 0.0,
        k: int = 0,
        trace: float = 0.0,
        refresh: int = 1,
        step: str = "pa",
        rank: int | None = None,
        init: str | Mapping[str, ArrayLike] = "identity",
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        self.dims = dims
        self.eta = eta
        self.mu = mu
        self.k = k
        self.trace = trace
        self.refresh = refresh
        self.step = step
        self.rank = rank
        self.init = init
        self.dtype = dtype
        self.seed = seed
        self._prepare()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"dims": {"a": 4, "b": 3}}
        yield {"dims": {"a": 4, "b": 3}, "mu": 0.1, "k": 2, "trace": 0.01}

    def _check(self) -> None:
        super()._check()
        check_rate("eta", self.eta)
        check_step(self.step)

    def _share(self) -> float:
        return 1.0 / len(self.dims)

    def _begin(self, start: Mapping[str, Array]) -> FullEngine:
        from omdml.engines.full import FullEngine
        from omdml.kernels.full import Rule

        exact = self.step == "pa"
        rule = Rule(float(self.eta), gamma=1.0, log_beta=0.0, keep=1.0, exact=exact, joint=True)
        return FullEngine({name: start[name] for name in self.dims}, rule, self.mu, self.k, self.trace, self.refresh)
