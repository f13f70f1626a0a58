"""CP-mtML: a projection that all tasks share, coupled with one for each task (CP-mtML, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from numpy.typing import ArrayLike

from omdml.learners.shared.checks import expect, is_number, is_one_of
from omdml.learners.shared.pairs import PairLearner
from omdml.metrics.coupled import SHARED, CoupledMetric

# Values of ``serve``.
SERVED = ("both", "shared", "task")


class CoupledLearner(PairLearner):
    """Learners of a shared matrix, at the rate ``eta0``, and of a matrix for each task, at ``eta``."""

    eta0: float | None
    gamma: float

    def __init__(
        self,
        dims: Mapping[str, int],
        tasks: Sequence[str] | None = None,
        rank: int = 64,
        eta: float = 1.0,
        eta0: float | None = None,
        gamma: float = 0.5,
        step: str = "pa",
        init: str | Mapping[str, ArrayLike] = "wpca",
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        self.eta0 = eta0
        self.gamma = gamma
        super().__init__(dims, tasks, rank, eta, step, init, dtype, seed)

    def _check(self) -> None:
        super()._check()
        expect(is_number(self.gamma) and 0 <= self.gamma <= 1, "gamma", self.gamma, "a share in [0, 1]")
        sound = self.eta0 is None or (is_number(self.eta0) and self.eta0 >= 0)
        expect(sound, "eta0", self.eta0, "a rate of at least 0, or None for gamma * eta")

    def _shares(self) -> list[float]:
        return [self.gamma if self.eta0 is None else self.eta0 / self.eta, 1.0]


class CPmtML(CoupledLearner):
    """Coupled projection multi-task metric learning (Bhattarai et al., CVPR 2016, Algorithm 1).

    ``d_t^2 = |L_0 c|^2 + |L_t c|^2`` is the squared distance of a pair in the sense of task t. c is the difference of
    the two items, all modalities side by side, L_0 (r, sum of dims) the matrix that all tasks share, L_t that of task
    t, and b_t its threshold: pairs at a smaller squared distance count as similar. y is 1 for a pair that is similar in
    the sense of task t, and -1 for other pairs. If ``loss = 1 - y (b_t - d_t^2)`` is above 0, the pair takes the step::

        L_0 <- L_0 - gamma rate y L_0 c c',    L_t <- L_t - rate y L_t c c',    b_t <- b_t + 0.1 rate y.

    There may be any number of tasks, and their pairs may come in any order.

    Departures from the paper, measured on yaleb (who it is, and the light; 1,831 dimensions to 64; 20,000 pairs of both
    tasks in turn, as many similar as not; mAP of the two tasks, seed 0; WPCA alone 0.310 and 0.215):

    - The rate is capped (``step="pa"``). With k = 0 for L_0 and 1 for L_t, ``u_k = |L_k c|^2`` and ``s = (gamma, 1)``,
      it is::

          min(eta, 2 loss / (A + sqrt(max(0, A^2 - 4 y K loss))), 1 / (4 |c|^2 max_k s_k)),
          A = 0.1 + 2 |c|^2 sum_k s_k u_k,    K = |c|^4 sum_k s_k^2 u_k.

      The second term is the smallest rate at which the loss is zero. At the third, neither ``L_0 c`` nor ``L_t c``
      changes by more than a quarter. The paper's fixed rate gives 0.967 and 0.868 at 0.003, 0.857 and 0.829 at 0.01,
      and diverges at 0.03. The capped rate gives 0.972 and 0.869 at any ``eta`` from 0.01 to 10. Without the third term
      it would be 0.978 and 0.883. If a tenth of the judgements are wrong, it is 0.940 and 0.767, and would be 0.676 and
      0.442 without the third term. The figures depend on the scale of the features: 100 times larger ones give 0.975
      and 0.919, 10 times smaller ones 0.946 and 0.764.
    - Starts have unit spread: the mean ``d_t^2`` of random pairs is 1, which is where ``b_t`` starts. All tasks share
      the catalogue, so the start (``init``) is the same for all of them.

    Parameters
    ----------
    dims
        Dimension of each modality, by name, in the order in which they lie side by side.
    tasks
        Names of the tasks; None: one task, ``default``.
    rank
        Rows r of every matrix: ``min(rank, sum of dims)``.
    eta
        Largest rate of a step of L_t, > 0, in units of features to the power -2; with ``step="ogd"`` the rate itself.
    eta0
        Largest rate of a step of L_0, >= 0. Then the share of L_0 is ``eta0 / eta`` instead of ``gamma``. None: the
        share is ``gamma``.
    gamma
        Share of the rate that L_0 takes, in [0, 1] (0.1, 0.5 and 1 agree within 0.003 mAP on yaleb). Without effect if
        ``eta0`` is given.
    step
        ``"pa"`` (the cap above) or ``"ogd"`` (the paper's fixed rate, which can diverge).
    serve
        What a task's metric consists of: ``"both"`` matrices; or, as in the paper's Table 1, only the ``"shared"`` one
        (0.610 and 0.052 on yaleb, whose tasks are opposed) or only the ``"task"``'s (0.970 and 0.869).
    init
        ``"wpca"``, ``"pca"``, ``"gaussian"``, ``"identity"``, as in :class:`LOMDML`, or arrays (r, sum of dims) for
        ``shared`` and every task, used as they are.
    dtype
        ``"float32"`` or ``"float64"``.
    seed
        Seed of the sample of at most 10,000 items that the start is computed from, and of Gaussian rows.

    Examples
    --------
    >>> import numpy as np
    >>> draw = np.random.default_rng(0)
    >>> shape, tone = draw.integers(0, 3, (2, 400))
    >>> features = {"item": np.concatenate([np.eye(3)[shape], np.eye(3)[tone]], axis=1) + draw.normal(0, 0.1, (400, 6))}
    >>> pairs = draw.integers(0, 400, (2, 1000, 2))
    >>> model = CPmtML(dims={"item": 6}, tasks=["shape", "tone"], rank=4, init="pca")
    >>> for part in pairs:
    ...     for task, label in {"shape": shape, "tone": tone}.items():
    ...         alike = label[part[:, 0]] == label[part[:, 1]]
    ...         print(task, model.learn_many(part, features, similar=alike, task=task).mistakes)
    shape 1
    tone 9
    shape 0
    tone 0
    >>> {task: round(threshold, 2) for task, threshold in model.thresholds.items()}
    {'shape': 1.34, 'tone': 1.32}
    >>> model.metric.embed(features, task="tone").shape
    (400, 8)
    """

    name: ClassVar[str] = "cpmtml"

    def __init__(
        self,
        dims: Mapping[str, int],
        tasks: Sequence[str] | None = None,
        rank: int = 64,
        eta: float = 1.0,
        eta0: float | None = None,
        gamma: float = 0.5,
        step: str = "pa",
        serve: str = "both",
        init: str | Mapping[str, ArrayLike] = "wpca",
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        self.serve = serve
        super().__init__(dims, tasks, rank, eta, eta0, gamma, step, init, dtype, seed)

    def _check(self) -> None:
        super()._check()
        expect(is_one_of(self.serve, SERVED), "serve", self.serve, f"one of {', '.join(SERVED)}")

    @property
    def _stacks(self) -> list[list[str]]:
        return [[SHARED, task] for task in self._tasks]

    @property
    def metric(self) -> CoupledMetric:
        """The metric to serve: both matrices of each task, or what ``serve`` says. Raises NotStarted."""
        matrices = self.matrices
        if self.serve == "shared":
            return CoupledMetric(self.dims, {SHARED: matrices[SHARED]}, {t: [SHARED] for t in self._tasks})
        if self.serve == "task":
            return CoupledMetric(self.dims, {t: matrices[t] for t in self._tasks}, {t: [t] for t in self._tasks})
        return CoupledMetric(self.dims, matrices, dict(zip(self._tasks, self._stacks, strict=True)))
