"""What every learner is: hyperparameters, one verb, a state that travels as bytes."""

from __future__ import annotations

import copy
import inspect
import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from river import base

from omdml.engines.base import Engine
from omdml.errors import CorruptError, FormatError, StartError
from omdml.formats import STATE
from omdml.learners.shared.checks import check_dims, check_numbers, check_rows, expect, not_started, tables, whole
from omdml.metrics import Metric
from omdml.metrics.base import check_features
from omdml.snapshot import pack, unpack

Array = NDArray[Any]
# A state may stand for so many numbers without holding them: coordinates can share a weight.
ROOM = 1 << 24
# Stands before the names of arrays that ``init`` brought; no modality's name holds a slash.
GIVEN = "init//"
LEARNERS: dict[str, type[Learner]] = {}
# The names of the hyperparameters of each class.
KEYWORDS: dict[type[Learner], tuple[str, ...]] = {}


class Outcome(NamedTuple):
    """What a call learned: ``scores`` (T,) are f of each comparison before it was learned, f > 0 being a mistake."""

    scores: Array

    @property
    def mistakes(self) -> int:
        """How many comparisons the metric had the wrong way round."""
        return int((self.scores > 0).sum())


class Learner(base.Base):
    """Common ground of all learners; river gives ``clone`` and ``repr``, so arguments are stored untouched.

    A learner has an engine as soon as it has begun: from ``init`` given as arrays, or from a sample of features at
    :meth:`start`, which the first call of ``learn_many`` makes up for.
    """

    name: ClassVar[str]
    # Kinds of comparison: triplet, quadruplet, pair, set.
    accepts: ClassVar[frozenset[str]]
    # How many items a comparison has.
    width: ClassVar[int]
    # What of a catalogue a model learns on if its configuration does not say.
    coordinates: ClassVar[str] = "features"
    # Hyperparameters that have another default on mapped coordinates.
    on_mapped: ClassVar[Mapping[str, Any]] = {}
    # Keywords of learn_many: what else a comparison brings.
    columns: ClassVar[tuple[str, ...]] = ()
    dims: Mapping[str, int]
    init: str | Mapping[str, ArrayLike]
    dtype: str
    seed: int
    _engine: Any = None

    def __init__(self, dims: Mapping[str, int], **hyperparameters: Any) -> None:
        self.dims = dims

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__:
            LEARNERS[cls.name] = cls

    def _prepare(self) -> None:
        """Refuse bad arguments, and begin where ``init`` is arrays: the end of every constructor."""
        check_dims(self.dims)
        expect(self.dtype in ("float32", "float64"), "dtype", self.dtype, "'float32' or 'float64'")
        expect(whole(self.seed) and self.seed >= 0, "seed", self.seed, "a whole number of at least 0")
        check_numbers(self.init)
        self._check()
        if not isinstance(self.init, str):
            self._engine = self._begin({name: np.array(array, self.dtype) for name, array in self.init.items()})

    @abstractmethod
    def _check(self) -> None:
        """Refuse hyperparameters out of range; raises ParameterError."""

    @abstractmethod
    def _sampled(self, features: Mapping[str, Array]) -> dict[str, Array]:
        """A start of the name ``init`` from a sample of these features, keyed like ``matrices``; raises StartError."""

    @abstractmethod
    def _begin(self, start: Mapping[str, Array]) -> Engine:
        """The engine that starts from these arrays."""

    @abstractmethod
    def _shapes(self, tensors: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        """Of the start's arrays, for an engine that takes on these tensors; raises CorruptError."""

    def start(self, features: Mapping[str, Array]) -> None:
        """Begin from a sample of these features; without effect on a learner that has begun.

        Raises StartError, or FeedbackError if the features do not fit ``dims``.
        """
        if self._engine is None:
            check_features(features, self.dims)
            if not len(next(iter(features.values()))):
                raise StartError("no item to start from: give features of at least one, or init as arrays")
            self._engine = self._begin(self._finite_start(features))

    def _finite_start(self, features: Mapping[str, Array]) -> dict[str, Array]:
        with np.errstate(all="ignore"):
            try:
                sampled = {name: array.astype(self.dtype) for name, array in self._sampled(features).items()}
            except np.linalg.LinAlgError as error:
                message = f"init={self.init!r} of these features cannot be computed ({error})"
                raise StartError(f"{message}: scale them, or give init as arrays") from error
        for name, array in sampled.items():
            if not np.isfinite(array).all():
                raise StartError(f"{name}: init={self.init!r} is not finite in {self.dtype}: scale the features")
        return sampled

    @property
    def figures(self) -> dict[str, float]:
        """What people who inspect a snapshot are told of the learner, as shares; none of most learners."""
        return {}

    @abstractmethod
    def learn_many(self, rows: ArrayLike, features: Mapping[str, Array], **kw: Any) -> Outcome:
        """Learn comparisons in order, all of them or none."""

    def learn_one(self, row: ArrayLike, features: Mapping[str, Array], **kw: Any) -> Outcome:
        """``learn_many`` on one row: same decisions, same bytes."""
        return self.learn_many(np.asarray(row)[None], features, **kw)

    def _learn(
        self, rows: ArrayLike, features: Mapping[str, Array], *columns: Array, width: int | None = None
    ) -> Outcome:
        """Check rows (T, width), begin if need be, and walk; ``width`` is the learner's own by default."""
        checked = check_rows(rows, width or self.width, check_features(features, self.dims))
        fresh = self._engine is None
        self.start(features)
        engine = self._started("learn_many")
        try:
            table, matrices = tables(checked, features, list(self.dims), np.dtype(self.dtype))
            return Outcome(engine.learn(np.ascontiguousarray(table), matrices, *columns, known=checked))
        except Exception:
            self._engine = None if fresh else engine
            raise

    def _started(self, what: str) -> Any:
        if self._engine is None:
            raise not_started(what)
        return self._engine

    def learning_on(self, **hyperparameters: Any) -> Self:
        """A learner that goes on from this one's state, open block included, with other hyperparameters.

        Raises ParameterError, or CorruptError if the state has another shape under them.
        """
        tensors = self._started("learning_on").to_tensors()
        return type(self)(dims=self.dims, **hyperparameters)._resumed(tensors)

    def _resumed(self, tensors: Mapping[str, Array]) -> Self:
        """This learner, gone on to a state; raises CorruptError if that has another shape."""
        shapes = self._shapes(tensors)
        claimed, held = sum(map(math.prod, shapes.values())), sum(array.size for array in tensors.values())
        if claimed > max(held, ROOM):
            raise CorruptError(f"learner state of {held} numbers, expected {claimed} for dims {dict(self.dims)}")
        self._engine = self._begin({name: np.zeros(shape, self.dtype) for name, shape in shapes.items()})
        self._started("from_bytes").restore(tensors)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A learner in the same state that learns by itself; hyperparameters, which nobody changes, are shared."""
        twin = copy.copy(self)
        twin._engine = copy.deepcopy(self._engine, memo)
        return twin

    @property
    @abstractmethod
    def metric(self) -> Metric:
        """Immutable view of what was learned, open block included."""

    @property
    @abstractmethod
    def matrices(self) -> dict[str, Array]:
        """What was learned as arrays, open block included."""

    @property
    def version(self) -> int:
        """Comparisons learned."""
        return int(self._engine.version) if self._engine else 0

    @property
    def mistakes(self) -> int:
        """Comparisons with f > 0."""
        return int(self._engine.mistakes) if self._engine else 0

    @property
    def updates(self) -> int:
        """Comparisons that changed something: violated ones."""
        return int(self._engine.updates) if self._engine else 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory that learning takes: state and scratch."""
        return int(self._engine.nbytes) if self._engine else 0

    def _get_params(self) -> dict[str, Any]:
        """Hyperparameters by name; river's own reads the constructor's signature each time, 0.3 ms."""
        if type(self) not in KEYWORDS:
            KEYWORDS[type(self)] = tuple(inspect.signature(type(self)).parameters)
        return {name: getattr(self, name) for name in KEYWORDS[type(self)]}

    def to_bytes(self) -> bytes:
        """The whole state, open block included: equal states give equal bytes. Raises NotStarted."""
        parameters = self._get_params()
        tensors = self._started("to_bytes").to_tensors()
        if not isinstance(parameters.get("init", ""), str):
            tensors |= {f"{GIVEN}{name}": np.asarray(array) for name, array in parameters["init"].items()}
            parameters = {**parameters, "init": None}
        return pack(tensors, {"learner": self.name, "parameters": parameters})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """A learner that continues with the same bytes; raises CorruptError, FormatError if another release wrote them.

        What was written under an earlier number may fit this release, or not: its bytes are whole either way.
        """
        tensors, metadata = unpack(data)
        try:
            return cls._of(tensors, metadata)
        except CorruptError as error:
            if metadata["format"] == STATE.number:
                raise
            raise FormatError(
                f"{error}: written by an older omdml (format {metadata['format']}, this one writes {STATE.number}): "
                "run the release that wrote it, or learn the model again; nothing was changed"
            ) from error

    @classmethod
    def _of(cls, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]) -> Self:
        name = metadata.get("learner")
        if not isinstance(name, str) or name not in LEARNERS:
            raise CorruptError(f"learner state of {name!r}; known: {', '.join(sorted(LEARNERS))}")
        if not issubclass(LEARNERS[name], cls):
            raise CorruptError(f"learner state of {name!r}, expected one of {cls.__name__}")
        given = {name.removeprefix(GIVEN): array for name, array in tensors.items() if name.startswith(GIVEN)}
        try:
            learner = LEARNERS[name](**{**metadata["parameters"], **({"init": given} if given else {})})
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptError(f"learner state of {name!r}: not its parameters ({error})") from error
        return learner._resumed(tensors)  # type: ignore[return-value]
