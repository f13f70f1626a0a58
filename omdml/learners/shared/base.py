"""The base of all learners: hyperparameters, one verb (learn), and a state that can be written as bytes."""

from __future__ import annotations

import copy
import functools
import inspect
import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from river import base

from omdml.errors import CorruptError, FormatError, StartError
from omdml.formats import STATE
from omdml.learners.shared.checks import (
    check_dims,
    check_given,
    check_rows,
    expect,
    is_one_of,
    is_whole,
    not_started,
    tables,
)
from omdml.metrics import Metric
from omdml.metrics.base import check_features
from omdml.snapshot import pack, unpack

if TYPE_CHECKING:
    from omdml.engines.base import Engine

Array = NDArray[Any]
# The arrays of a start may have this many numbers, even if the state has fewer: coordinates can share a weight. If they
# have more than this and more than the state, the state is damaged, and no memory must be allocated for it.
ROOM = 1 << 24
# Prefix, in a state, of the arrays that were given as ``init``. Names of modalities have no slash.
GIVEN = "init//"
# The classes of learners, by the name that configurations and states use.
LEARNERS: dict[str, type[Learner]] = {}
# The names of the hyperparameters of each class.
KEYWORDS: dict[type[Learner], tuple[str, ...]] = {}


class Outcome(NamedTuple):
    """The result of ``learn_many``.

    ``scores`` (T,), float64, has the score f of each comparison, computed before the comparison was learned. If f is
    above 0, the metric ordered the comparison wrongly. That is a *mistake*.
    """

    scores: Array

    @property
    def mistakes(self) -> int:
        """Number of comparisons that the metric ordered wrongly."""
        return int((self.scores > 0).sum())


class Learner(base.Base):
    """The base of all learners.

    A learner has *started* once it has matrices to learn on. If ``init`` is arrays, the constructor starts it.
    Otherwise :meth:`start` computes the matrices from a sample of features; the first call of :meth:`learn_many` calls
    it. Before that ``metric``, ``matrices`` and ``to_bytes`` raise NotStarted.

    Constructors raise ParameterError if an argument is out of range. river provides ``clone`` and ``repr``, so
    constructor arguments are stored as they are.
    """

    name: ClassVar[str]
    # Kinds of comparison: triplet, quadruplet, pair, set.
    accepts: ClassVar[frozenset[str]]
    # Number of items in a comparison.
    width: ClassVar[int]
    # The coordinates of a catalogue to learn on, unless a configuration says: "features" or "mapped".
    coordinates: ClassVar[str] = "features"
    # Hyperparameters with a different default on mapped coordinates.
    on_mapped: ClassVar[Mapping[str, Any]] = {}
    # Keywords of learn_many: further values of a comparison.
    columns: ClassVar[tuple[str, ...]] = ()
    # What one step changes: rows of a matrix, a whole matrix, weights of coordinates, or a similarity. By this one can
    # tell whether a rate fits the items. None if there is no rate, or if it has no unit, so that scaled features teach
    # the same. Each class, or its base, has it.
    step_changes: ClassVar[Literal["rows", "matrix", "weights", "similarity"] | None]
    # Why the metric has no embedding of single items, as half a sentence; empty if it has one.
    no_embedding: ClassVar[str] = ""
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
        """Check the arguments, and start if ``init`` is arrays. Every constructor ends with this call."""
        check_dims(self.dims)
        expect(is_one_of(self.dtype, ("float32", "float64")), "dtype", self.dtype, "'float32' or 'float64'")
        expect(is_whole(self.seed) and self.seed >= 0, "seed", self.seed, "a whole number of at least 0")
        check_given(self.init, self.dtype)
        self._check()
        if not isinstance(self.init, str):
            self._engine = self._begin({name: np.array(array, self.dtype) for name, array in self.init.items()})

    @abstractmethod
    def _check(self) -> None:
        """Refuse hyperparameters out of range; raises ParameterError."""

    @abstractmethod
    def _sampled(self, features: Mapping[str, Array]) -> dict[str, Array]:
        """The start named ``init`` from a sample of these features, keyed like ``matrices``; raises StartError."""

    @abstractmethod
    def _begin(self, start: Mapping[str, Array]) -> Engine:
        """The engine that starts from these arrays. Its class is imported here; see :mod:`omdml.learners`."""

    @abstractmethod
    def _shapes(self, tensors: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        """Shapes of the start's arrays for an engine that can restore these tensors; raises CorruptError."""

    def start(self, features: Mapping[str, Array]) -> None:
        """Start from a sample of these features, (n, d_i) for each modality. A learner that has started stays as it is.

        Raises StartError if no start can be computed from the features, and FeedbackError if they do not fit ``dims``.
        """
        if self._engine is None:
            if not check_features(features, self.dims):
                raise StartError("no item to start from: give features of at least one, or init as arrays")
            self._engine = self._begin(self._finite_start({name: features[name] for name in self.dims}))

    def _finite_start(self, features: Mapping[str, Array]) -> dict[str, Array]:
        """The start from these features, in the learner's type; raises StartError if it is not finite in it."""
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
        """What a learner reports about itself to people who inspect a snapshot, by name; empty for most learners."""
        return {}

    @abstractmethod
    def learn_many(self, rows: ArrayLike, features: Mapping[str, Array], **kw: Any) -> Outcome:
        """Learn comparisons in order, all of them or none.

        Parameters
        ----------
        rows : (T, width)
            The items of each comparison, as row numbers of ``features``. A triplet has 3, a quadruplet 4, a pair 2.
        features
            One matrix (n, d_i) for each modality.
        kw
            Further values of the comparisons. Each learner says which ones it takes.

        Raises
        ------
        FeedbackError
            A comparison or the features do not fit, or learning would overflow. Nothing was learned.
        StartError
            On the first call: no start can be computed from the features. Nothing was learned.
        ParameterError
            A keyword is unknown. Nothing was learned.
        """

    def learn_one(self, row: ArrayLike, features: Mapping[str, Array], **kw: Any) -> Outcome:
        """Learn one comparison ``row`` (width,). The state and the errors are those of :meth:`learn_many`."""
        rows: Any = [row]
        return self.learn_many(rows, features, **kw)

    def _learn(
        self, rows: ArrayLike, features: Mapping[str, Array], *columns: Array, width: int | None = None
    ) -> Outcome:
        """Check rows (T, width), start if necessary, and learn. ``width`` is the learner's own by default."""
        checked = check_rows(rows, width or self.width, check_features(features, self.dims))
        starts_now = self._engine is None
        self.start(features)
        engine = self._started("learn_many")
        try:
            table, matrices = tables(checked, features, list(self.dims), np.dtype(self.dtype))
            return Outcome(engine.learn(np.ascontiguousarray(table), matrices, *columns, caller_rows=checked))
        except BaseException:
            # A first batch that was refused or interrupted must not decide the start.
            if starts_now:
                self._engine = None
            raise

    def _started(self, what: str) -> Any:
        if self._engine is None:
            raise not_started(what)
        return self._engine

    def learning_on(self, **hyperparameters: Any) -> Self:
        """A learner with other hyperparameters that continues from this one's state.

        Hyperparameters that are not given have their defaults, not the values of this learner.

        Raises NotStarted, ParameterError if a hyperparameter is out of range, and CorruptError if the state does not
        fit the hyperparameters.
        """
        tensors = self._started("learning_on").to_tensors()
        return type(self)(dims=self.dims, **hyperparameters)._resumed(tensors)

    def _resumed(self, tensors: Mapping[str, Array]) -> Self:
        """This learner, after it has restored a state; raises CorruptError if the state does not fit."""
        shapes = self._shapes(tensors)
        expected, size = sum(map(math.prod, shapes.values())), sum(array.size for array in tensors.values())
        if expected > max(size, ROOM):
            raise CorruptError(f"learner state has {size} numbers, expected {expected} for dims {dict(self.dims)}")
        self._engine = self._begin({name: np.zeros(shape, self.dtype) for name, shape in shapes.items()})
        self._started("from_bytes").restore(tensors)
        return self

    def _convert(self, number: int) -> None:
        """Bring the state up to the newest format. It was restored as it is from a state of this ``number``."""

    def __reduce__(self) -> tuple[Any, ...]:
        """What is pickled: the bytes of :meth:`to_bytes`, or the parameters of a learner that has not started.

        So another release reads a pickle as it reads these bytes.
        """
        if self._engine is None:
            return functools.partial(type(self), **self._get_params()), ()
        return type(self).from_bytes, (self.to_bytes(),)

    def __copy__(self) -> Self:
        """A learner with the same engine."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """An independent learner in the same state. Hyperparameters never change, and are shared."""
        twin = copy.copy(self)
        twin._engine = copy.deepcopy(self._engine, memo)
        return twin

    @property
    @abstractmethod
    def metric(self) -> Metric:
        """The metric learned so far. It never changes, so ask for it again after more learning. Raises NotStarted."""

    @property
    @abstractmethod
    def matrices(self) -> dict[str, Array]:
        """The learned arrays by name, with everything learned so far. Raises NotStarted."""

    @property
    def version(self) -> int:
        """Number of comparisons learned, 0 before the first one."""
        return int(self._engine.version) if self._engine else 0

    @property
    def mistakes(self) -> int:
        """Number of comparisons that the metric ordered wrongly before it learned them: those with f > 0."""
        return int(self._engine.mistakes) if self._engine else 0

    @property
    def updates(self) -> int:
        """Number of comparisons that violated their margin, and so led to a step. DCA has no steps, and counts all."""
        return int(self._engine.updates) if self._engine else 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory for learning: state and working space; 0 before the start."""
        return int(self._engine.nbytes) if self._engine else 0

    def _get_params(self) -> dict[str, Any]:
        """Hyperparameters by name. river's own method takes 0.3 ms, because it reads the signature each time."""
        if type(self) not in KEYWORDS:
            KEYWORDS[type(self)] = tuple(inspect.signature(type(self)).parameters)
        return {name: getattr(self, name) for name in KEYWORDS[type(self)]}

    def to_bytes(self) -> bytes:
        """The whole state as bytes, for :meth:`from_bytes`. Equal states give equal bytes. Raises NotStarted."""
        parameters = self._get_params()
        tensors = self._started("to_bytes").to_tensors()
        if not isinstance(parameters.get("init", ""), str):
            tensors |= {f"{GIVEN}{name}": np.asarray(array) for name, array in parameters["init"].items()}
            parameters = {**parameters, "init": None}
        return pack(tensors, {"learner": self.name, "parameters": parameters})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The learner in these bytes. It continues as the one that wrote them would.

        Raises CorruptError if the bytes are damaged, and FormatError if another release wrote them and this one cannot
        read them.
        """
        tensors, metadata = unpack(data)
        try:
            return cls._of(tensors, metadata)
        except CorruptError as error:
            if metadata["format"] == STATE.number:
                raise
            raise FormatError(
                f"{error}: written by an older omdml (format {metadata['format']}, this one writes {STATE.number}): "
                "run the release that wrote it, or learn the model again. Nothing was changed"
            ) from error

    @classmethod
    def _of(cls, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]) -> Self:
        """The learner in what :meth:`to_bytes` packed; raises CorruptError if the parts do not fit together."""
        name = metadata.get("learner")
        if not isinstance(name, str) or name not in LEARNERS:
            known = ", ".join(sorted(LEARNERS))
            raise CorruptError(f"learner state of the unknown learner {name!r}, expected one of {known}")
        if not issubclass(LEARNERS[name], cls):
            raise CorruptError(f"learner state of {name!r}, expected one of the class {cls.__name__}")
        init = {name.removeprefix(GIVEN): array for name, array in tensors.items() if name.startswith(GIVEN)}
        try:
            learner = LEARNERS[name](**{**metadata["parameters"], **({"init": init} if init else {})})
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptError(f"learner state of {name!r}: the parameters in it do not fit ({error})") from error
        learner._resumed(tensors)._convert(metadata["format"])
        return learner  # type: ignore[return-value]
