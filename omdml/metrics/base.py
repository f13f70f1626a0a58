"""The base of all metrics: an immutable result of learning that embeds and scores items."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CorruptError, FeedbackError, MeasureError, quoted

Array = NDArray[Any]
# The classes of metrics, by kind.
METRICS: dict[str, type[Metric]] = {}
# Number of rows that are embedded at a time, so that memory-mapped features are never in memory all at once.
CHUNK_ROWS = 16_384


class Metric(ABC):
    """A metric, as learned up to some version. It never changes.

    A ``task`` is one sense in which items can be similar. Only metrics of ``cpmtml`` and its relatives have tasks;
    others ignore the argument. None means the only task, or the matrix that all tasks share, or the sum of the tasks'
    distances if they share none.
    """

    kind: ClassVar[str]
    # Whether an embedding exists whose squared Euclidean distance is the learned one.
    euclidean: ClassVar[bool]

    def __init_subclass__(cls) -> None:
        if "kind" in cls.__dict__:
            METRICS[cls.kind] = cls

    @property
    @abstractmethod
    def dims(self) -> dict[str, int]:
        """d_i, the dimension of each modality, by name."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of tasks that queries may give; empty if feedback names none."""
        return ()

    def same_as(self, task: str | None) -> str | None:
        """The task, or None, with the same metric as this task. Tasks that agree share one gallery."""
        return task

    @abstractmethod
    def embed(self, features: Mapping[str, Array], task: str | None = None) -> Array:
        """Vectors (n, R) of items with ``features`` (n, d_i) for each modality. R depends on the metric.

        Raises FeedbackError if the features do not fit or the task is unknown, MeasureError if there is no embedding.
        """

    def score(self, query: Mapping[str, Array], items: Mapping[str, Array], task: str | None = None) -> Array:
        """Closeness (n,) of ``items`` (n, d_i) to one ``query`` (d_i,) or (1, d_i): higher is closer.

        It is minus the learned squared distance, or the learned score if the metric has no distance. Raises
        FeedbackError if the features do not fit or the task is unknown.
        """
        point = query_point(query, self.dims)
        difference = self.embed(items, task) - self.embed(point, task)
        return -np.einsum("ij,ij->i", difference, difference)

    def columns(self, task: str | None = None) -> dict[str, int]:
        """Number of components of an embedding that belong to each part of the metric, in their order.

        A part is a modality, an expert or a matrix. The squared distances within the parts add up to the learned
        distance. Raises MeasureError if the metric has no such parts.
        """
        raise MeasureError(f"a {self.kind} metric has no parts whose distances add up to the learned one")

    def score_parts(
        self, query: Mapping[str, Array], items: Mapping[str, Array], task: str | None = None
    ) -> dict[str, Array]:
        """What each part adds to the :meth:`score` (n,) of items, by the part's name.

        Raises MeasureError if the score is not a sum of parts.
        """
        raise MeasureError(f"the score of a {self.kind} metric is no sum of parts")

    def closeness(self, left: Mapping[str, Array], right: Mapping[str, Array], task: str | None = None) -> Array:
        """Closeness (n,) of each row of ``left`` (n, d_i) to the same row of ``right`` (n, d_i): higher is closer."""
        difference = self.embed({name: left[name] - right[name] for name in self.dims}, task)
        return -np.einsum("ij,ij->i", difference, difference)

    @abstractmethod
    def to_tensors(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The tensors, and a description of them that can be written as JSON."""

    @classmethod
    @abstractmethod
    def from_tensors(cls, tensors: Mapping[str, Array], description: Mapping[str, Any]) -> Metric:
        """The inverse of :meth:`to_tensors`; raises KeyError or ValueError if the tensors do not fit together."""


def metric_from_tensors(kind: str, tensors: Mapping[str, Array], description: Mapping[str, Any]) -> Metric:
    """The metric in these tensors; raises CorruptError for an unknown kind, or tensors that are not floating."""
    if kind not in METRICS:
        known = ", ".join(sorted(METRICS))
        raise CorruptError(f"metric of the unknown kind {kind!r}, expected one of {known}: is this omdml too old?")
    for name, tensor in tensors.items():
        if tensor.dtype.kind != "f":
            raise CorruptError(f"metric: {name} is {tensor.dtype}, expected floating numbers")
    return METRICS[kind].from_tensors(tensors, description)


def frozen(array: Array) -> Array:
    """A read-only C-contiguous view of the array, or of a copy."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def query_point(query: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
    """A ``query`` (d_i,) or (1, d_i) as features (1, d_i) of an item; raises FeedbackError if it does not fit."""
    if isinstance(query, Mapping):
        query = {name: np.reshape(query[name], (1, -1)) for name in dims if name in query}
    check_features(query, dims)
    return dict(query)


def check_numeric(name: str, matrix: object) -> None:
    """Raise FeedbackError unless ``matrix``, the features of a modality, is an array of numbers."""
    if getattr(matrix, "dtype", np.dtype(object)).kind not in "fiub":
        raise FeedbackError(f"features of modality {name!r} are {type(matrix)}, expected an array of numbers")


def dims_of(features: object) -> dict[str, int]:
    """d_i of each modality of ``features`` (n, d_i); raises FeedbackError for anything else, or no array."""
    if not isinstance(features, Mapping) or not features:
        raise FeedbackError(
            f"features are {quoted(features)}, expected an array (n, d) for each modality, at least one"
        )
    dims = {}
    for name, matrix in features.items():
        check_numeric(name, matrix)
        if len(matrix.shape) != 2 or not matrix.shape[1]:
            shape = f"have shape {matrix.shape}, expected (n, d), d at least 1"
            raise FeedbackError(f"features of modality {name!r} {shape}", reason="dimension")
        dims[name] = matrix.shape[1]
    return dims


def check_features(features: Mapping[str, Array], dims: Mapping[str, int]) -> int:
    """The number n of rows of ``features`` (n, d_i); raises FeedbackError if they do not have the dimensions d_i."""
    if not isinstance(features, Mapping):
        raise FeedbackError(f"features are {quoted(features)}, expected an array (n, d) for each of {sorted(dims)}")
    missing = [name for name in dims if name not in features]
    if missing:
        raise FeedbackError(
            f"features lack modality {missing[0]!r}: got {sorted(features)}, expected {sorted(dims)}",
            reason="missing_modality",
        )
    for name in dims:
        check_numeric(name, features[name])
    shapes = {name: features[name].shape for name in dims}
    for name, shape in shapes.items():
        if len(shape) != 2 or shape[1] != dims[name]:
            raise FeedbackError(
                f"features of modality {name!r} have shape {shape}, expected (n, {dims[name]})", reason="dimension"
            )
    rows = {shape[0] for shape in shapes.values()}
    if len(rows) != 1:
        raise FeedbackError(f"modalities have different numbers of rows: {shapes}", reason="dimension")
    return rows.pop()
