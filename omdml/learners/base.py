"""What every learner is: hyperparameters, one verb, a state that travels as bytes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from river import base

from omdml.errors import CorruptError, FeedbackError, NotStarted, ParameterError
from omdml.initial import STARTS, start_matrices
from omdml.metric import Metric, check_features
from omdml.snapshot import pack, unpack

Array = NDArray[Any]
MOST = 1e300  # a hyperparameter's size
GIVEN = "init//"  # before the names of arrays that ``init`` brought; no modality's name holds a slash
LEARNERS: dict[str, type[Learner]] = {}


class Outcome(NamedTuple):
    """What a call learned: ``scores`` (T,) are f of each comparison before it was learned, f > 0 being a mistake."""

    scores: Array

    @property
    def mistakes(self) -> int:
        """How many comparisons the metric had the wrong way round."""
        return int((self.scores > 0).sum())


class Learner(base.Base):
    """Common ground of all learners; river gives ``clone`` and ``repr``, so arguments are stored untouched."""

    name: ClassVar[str]
    accepts: ClassVar[frozenset[str]]
    dims: Mapping[str, int]

    def __init__(self, dims: Mapping[str, int]) -> None:
        self.dims = dims

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__:
            LEARNERS[cls.name] = cls

    @abstractmethod
    def start(self, features: Mapping[str, Array]) -> None:
        """Begin, from a sample of these features; without effect on a learner that has begun."""

    @abstractmethod
    def learn_many(self, rows: ArrayLike, features: Mapping[str, Array], **kw: Any) -> Outcome:
        """Learn comparisons in order, all of them or none."""

    def learn_one(self, row: ArrayLike, features: Mapping[str, Array], **kw: Any) -> Outcome:
        """``learn_many`` on one row: same decisions, same bytes."""
        return self.learn_many(np.asarray(row)[None], features, **kw)

    @property
    @abstractmethod
    def metric(self) -> Metric:
        """Immutable view of what was learned, open block included."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Comparisons learned."""

    @abstractmethod
    def _tensors(self) -> dict[str, Array]:
        """The state; raises NotStarted."""

    @abstractmethod
    def _resume(self, tensors: Mapping[str, Array]) -> None:
        """Take on a state; raises CorruptError."""

    def to_bytes(self) -> bytes:
        """The whole state, open block included: equal states give equal bytes. Raises NotStarted."""
        parameters = self._get_params()
        tensors = self._tensors()
        if not isinstance(parameters.get("init", ""), str):
            tensors |= {f"{GIVEN}{name}": np.asarray(array) for name, array in parameters["init"].items()}
            parameters = {**parameters, "init": None}
        return pack(tensors, {"learner": self.name, "parameters": parameters})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """A learner that continues with the same bytes; raises CorruptError."""
        tensors, metadata = unpack(data, "learner state")
        if metadata.get("learner") not in LEARNERS:
            raise CorruptError(f"learner state of {metadata.get('learner')!r}; known: {', '.join(sorted(LEARNERS))}")
        if not issubclass(LEARNERS[metadata["learner"]], cls):
            raise CorruptError(f"learner state of {metadata['learner']!r}, expected one of {cls.__name__}")
        parameters = dict(metadata["parameters"])
        given = {name.removeprefix(GIVEN): array for name, array in tensors.items() if name.startswith(GIVEN)}
        if given:
            parameters["init"] = given
        learner = LEARNERS[metadata["learner"]](**parameters)
        learner._resume(tensors)
        return learner  # type: ignore[return-value]


def check_rows(rows: ArrayLike, width: int, count: int) -> Array:
    """Row numbers as int64 (T, width), each below ``count``; raises FeedbackError naming the first bad one."""
    try:
        table = np.asarray(rows)
    except ValueError as error:
        raise FeedbackError(f"rows are no table of integers (T, {width}): {error}") from error
    if table.size == 0:
        table = np.empty((0, width), np.int64)
    if table.ndim != 2 or table.shape[1] != width or table.dtype.kind not in "iu":
        raise FeedbackError(f"rows of shape {table.shape} and type {table.dtype}, expected integers (T, {width})")
    if table.size and (table.min() < 0 or table.max() >= count):
        bad = int(np.flatnonzero(((table < 0) | (table >= count)).any(axis=1))[0])
        message = f"comparison {bad} names rows {table[bad].tolist()}, the features have rows 0 to {count - 1}"
        raise FeedbackError(f"{message}; nothing was learned", reason="unknown_item", row=bad)
    return table.astype(np.int64, copy=False)


def tables(
    rows: Array, features: Mapping[str, Array], names: list[str], dtype: np.dtype[Any]
) -> tuple[Array, list[Array]]:
    """Matrices the kernels can walk, and the rows renumbered for them.

    C-contiguous matrices of ``dtype`` (memory maps too) pass as they are; of others only the touched rows are read
    and cast.
    """
    matrices = [np.asarray(features[name]) for name in names]
    if all(matrix.flags.c_contiguous and matrix.dtype == dtype for matrix in matrices):
        return rows, matrices
    touched, renumbered = np.unique(rows, return_inverse=True)
    cast = [np.ascontiguousarray(matrix[touched], dtype) for matrix in matrices]
    return renumbered.reshape(rows.shape).astype(np.int64), cast


def expect(holds: bool, name: str, got: object, expected: str) -> None:
    """Refuse a hyperparameter."""
    if not holds:
        raise ParameterError(f"{name}={got!r}: expected {expected}")


def whole(value: object) -> bool:
    """An integer, not a truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def number(value: object) -> bool:
    """A finite number, not a truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return False
    return bool(-MOST <= (value.item() if isinstance(value, np.number) else value) <= MOST)


def check_dims(dims: object) -> None:
    """Refuse dimensions that are none."""
    sound = isinstance(dims, Mapping) and len(dims) > 0
    for name, size in dims.items() if isinstance(dims, Mapping) else ():
        sound = sound and isinstance(name, str) and "/" not in name and whole(size) and size > 0
    expect(sound, "dims", dims, "names without a slash and dimensions of at least 1, such as {'color': 81}")


def check_init(init: object, dims: Mapping[str, int]) -> None:
    """Refuse a start that is neither a name nor arrays (r_i, d_i) for exactly these modalities."""
    if isinstance(init, str):
        expect(init in STARTS, "init", init, f"one of {', '.join(STARTS)}, or arrays")
        return
    expect(isinstance(init, Mapping) and set(init) == set(dims), "init", type(init), f"arrays for {sorted(dims)}")
    for name, array in init.items():  # type: ignore[attr-defined]
        shape = np.shape(array)
        sound = len(shape) == 2 and shape[0] > 0 and shape[1] == dims[name] and bool(np.isfinite(array).all())
        expect(sound, f"init[{name!r}]", shape, f"finite numbers of shape (r, {dims[name]})")


class LowRankStart:
    """Start of the learners of matrices (r_i, d_i): from ``init`` as arrays, or from a sample of features."""

    @staticmethod
    def given(init: Mapping[str, ArrayLike], dims: Mapping[str, int], dtype: str) -> dict[str, Array]:
        """``init`` taken as it is."""
        return {name: np.array(init[name], dtype) for name in dims}

    @staticmethod
    def sampled(
        init: str, dims: Mapping[str, int], rank: int, features: Mapping[str, Array], seed: int, dtype: str
    ) -> dict[str, Array]:
        """A start of this name at unit spread, ``r_i = min(rank, d_i)``."""
        check_features(features, dims)
        ranks = {name: min(rank, size) for name, size in dims.items()}
        return {name: matrix.astype(dtype) for name, matrix in start_matrices(features, ranks, init, seed).items()}


def not_started(what: str) -> NotStarted:
    """The error for what a learner only has after its start."""
    return NotStarted(f"{what}: this learner has not begun; call start(features) or learn_many, or give init as arrays")
