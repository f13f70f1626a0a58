"""Learners of pairs: two items are similar in the sense of a task, or they are not (MATHS 5)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from omdml.errors import CorruptError, FeedbackError, quoted
from omdml.feedback import ONLY_TASK
from omdml.initial import SAMPLE, STARTS, start_matrices
from omdml.learners.shared.base import Array, Learner, Outcome
from omdml.learners.shared.checks import check_rate, check_rows, check_step, column_of, expect, is_whole
from omdml.metrics.base import check_features
from omdml.metrics.coupled import SHARED, CoupledMetric

if TYPE_CHECKING:
    from omdml.engines.coupled import CoupledEngine
    from omdml.kernels.coupled import Rule


class PairLearner(Learner):
    """Base of learners of matrices L (r, d), with d the sum of ``dims``: modalities lie side by side."""

    accepts: ClassVar[frozenset[str]] = frozenset({"pair"})
    width: ClassVar[int] = 2
    columns: ClassVar[tuple[str, ...]] = ("similar", "task")
    step_changes = "rows"
    tasks: Sequence[str] | None
    rank: int
    eta: float
    step: str

    def __init__(
        self,
        dims: Mapping[str, int],
        tasks: Sequence[str] | None = None,
        rank: int = 64,
        eta: float = 1.0,
        step: str = "pa",
        init: str | Mapping[str, ArrayLike] = "wpca",
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        self.dims = dims
        self.tasks = tasks
        self.rank = rank
        self.eta = eta
        self.step = step
        self.init = init
        self.dtype = dtype
        self.seed = seed
        self._prepare()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"dims": {"a": 4, "b": 3}, "tasks": ["look", "use"], "rank": 2}

    @property
    def _tasks(self) -> list[str]:
        return [ONLY_TASK] if self.tasks is None else list(self.tasks)

    @property
    @abstractmethod
    def _stacks(self) -> list[list[str]]:
        """Names of the matrices of each task."""

    def _shares(self) -> list[float]:
        """Share of the rate for each matrix of a task."""
        return [1.0]

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(name for names in self._stacks for name in names))

    def _check(self) -> None:
        names = self.tasks
        sound = isinstance(names, list | tuple) and len(names) > 0 and all(isinstance(t, str) and t for t in names)
        sound = names is None or (sound and len(set(names)) == len(names) and SHARED not in names)
        expect(sound, "tasks", names, f"a list of distinct names other than {SHARED!r}, or None for one task")
        expect(is_whole(self.rank) and self.rank >= 1, "rank", self.rank, "a whole number of at least 1")
        check_rate("eta", self.eta)
        check_step(self.step)
        if isinstance(self.init, Mapping):
            self._check_arrays({name: np.asarray(array) for name, array in self.init.items()})
        else:
            expect(self.init in STARTS, "init", self.init, f"one of {', '.join(STARTS)}, or arrays")

    def _check_arrays(self, arrays: Mapping[str, Array]) -> None:
        """Refuse a start that is not one matrix (r, d) for each of ``matrices``."""
        expect(set(arrays) == set(self._names), "init", sorted(arrays), f"arrays for {self._names}")
        shape = arrays[self._names[0]].shape
        expect(len(shape) == 2 and shape[0] > 0, "init", shape, f"arrays (r, {sum(self.dims.values())})")
        for name, array in arrays.items():
            check_array(name, array, (shape[0], sum(self.dims.values())))

    def _sampled(self, features: Mapping[str, Array]) -> dict[str, Array]:
        count = len(next(iter(features.values())))
        rows = np.sort(np.random.default_rng(self.seed).choice(count, min(count, SAMPLE), replace=False))
        together, width = " + ".join(self.dims), sum(self.dims.values())
        sample = np.concatenate([np.asarray(features[name][rows], np.float64) for name in self.dims], axis=1)
        start = start_matrices({together: sample}, {together: min(self.rank, width)}, str(self.init), self.seed)
        # With this scale, the distances of all matrices of a task add up to unit spread.
        scale = np.sqrt(len(self._stacks[0]))
        return dict.fromkeys(self._names, start[together] / scale)

    def _rule(self) -> Rule:
        from omdml.kernels.coupled import Rule

        return Rule(float(self.eta), np.array(self._shares(), np.float64), self.step == "pa")

    def _begin(self, start: Mapping[str, Array]) -> CoupledEngine:
        from omdml.engines.coupled import CoupledEngine

        names = self._names
        parts = np.array([[names.index(name) for name in stack] for stack in self._stacks], np.int64)
        return CoupledEngine(self.dims, np.stack([start[name] for name in names]), parts, self._rule())

    def _shapes(self, tensors: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(self._names, (rank_of(tensors), sum(self.dims.values())))

    def learn_many(
        self,
        rows: ArrayLike,
        features: Mapping[str, Array],
        similar: ArrayLike | None = None,
        task: str | Sequence[str] | Array | None = None,
        **kw: Any,
    ) -> Outcome:
        """Learn pairs in order, all of them or none.

        Parameters
        ----------
        rows : (T, 2)
            Row numbers of the two items of each pair.
        features
            One matrix (n, d_i) for each modality, with all items. Memory maps are fine: only the rows that are named
            are read and cast.
        similar : scalar or (T,)
            True if the pair is similar; required.
        task : scalar or (T,)
            The task of each pair, by name. It may be left out if there is only one task.

        Returns
        -------
        An Outcome. Its ``scores`` (T,) are ``y (d_t^2 - b_t)``. y is 1 for a similar pair and -1 for a dissimilar one.
        A score is positive if the pair lies on the wrong side of its task's threshold b_t.

        Raises
        ------
        FeedbackError
            A row is out of range, a task is not in ``tasks``, an item has values that are not finite, learning would
            overflow, or the features do not fit ``dims``. ``row`` is the index of the pair, if one is the cause.
            Nothing was learned.
        StartError
            On the first call: no start can be computed from the features. Nothing was learned.
        ParameterError
            A keyword is unknown.
        """
        expect(not kw, "other arguments of learn_many", sorted(kw), "pairs, features, similar and task, nothing else")
        pairs = check_rows(rows, self.width, check_features(features, self.dims))
        tasks = self._numbers(task_numbers(task, self._tasks, len(pairs)))
        return self._learn(pairs, features, signs(similar, len(pairs)), tasks)

    def _numbers(self, tasks: Array) -> Array:
        """For each of these numbers of tasks, the number of the stack that learns the task."""
        return tasks

    @property
    def metric(self) -> CoupledMetric:
        """The metric to serve, of all that was learned so far. Raises NotStarted."""
        return CoupledMetric(self.dims, self.matrices, dict(zip(self._tasks, self._stacks, strict=True)))

    @property
    def matrices(self) -> dict[str, Array]:
        """The learned matrices (r, d) by task; the shared one is called ``shared``. Raises NotStarted."""
        engine: CoupledEngine = self._started("matrices")
        return dict(zip(self._names, engine.parts(), strict=True))

    @property
    def thresholds(self) -> dict[str, float]:
        """b_t of each task: pairs at a smaller squared distance count as similar. Raises NotStarted."""
        engine: CoupledEngine = self._started("thresholds")
        numbers = self._numbers(np.arange(len(self._tasks)))
        return dict(zip(self._tasks, engine.thresholds[numbers].tolist(), strict=True))


def check_array(name: str, array: Array, shape: tuple[int, int]) -> None:
    """Refuse an array of ``init`` that has another shape, or values that are not finite."""
    sound = array.shape == shape and bool(np.isfinite(array).all())
    expect(sound, f"init[{name!r}]", array.shape, f"finite numbers of shape {shape}")


def rank_of(tensors: Mapping[str, Array]) -> int:
    """The rank r of a state; raises CorruptError if the state has none."""
    L = tensors.get("L", np.zeros(0))
    if L.ndim != 3 or L.shape[1] < 1:
        raise CorruptError(f"state has L of shape {L.shape}, expected (M, r, d), r at least 1")
    return L.shape[1]


def signs(similar: ArrayLike | None, count: int) -> Array:
    """1 for similar pairs and -1 for others, (count,); raises FeedbackError for anything but booleans."""
    column = column_of("similar", similar, count, "True or False")
    if column.size and column.dtype.kind != "b":
        raise FeedbackError(f"similar={quoted(similar)}: expected True or False, or ({count},) of them")
    # A new array, because numba would compile kernels again for a read-only one.
    return np.full(count, np.where(column, 1.0, -1.0))


def task_numbers(task: str | Sequence[str] | Array | None, tasks: Sequence[str], count: int) -> Array:
    """Indices in ``tasks``, (count,); raises FeedbackError for the first pair with an unknown task."""
    if task is None:
        if len(tasks) > 1:
            raise FeedbackError(
                f"task is missing: name one of {', '.join(tasks)} for every pair", reason="unknown_task"
            )
        return np.zeros(count, np.int64)
    column = column_of("task", task, count, "a name")
    places = {name: place for place, name in enumerate(tasks)}
    indices = np.array([places.get(name, -1) for name in column.ravel().tolist()], np.int64)
    numbers = np.full(count, indices.reshape(column.shape))
    unknown = np.flatnonzero(numbers < 0)
    if unknown.size:
        name = column.ravel().tolist()[unknown[0] if column.ndim else 0]
        message = f"comparison {unknown[0]} is of task {name!r}, expected one of {', '.join(tasks)}"
        raise FeedbackError(f"{message}; nothing was learned", reason="unknown_task", row=int(unknown[0]))
    return numbers
