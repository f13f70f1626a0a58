"""Checks of arguments of learners, and the errors for bad ones."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from omdml.errors import FeedbackError, NotStarted, ParameterError, quoted, row_range
from omdml.initial import STARTS

Array = NDArray[Any]
# The largest absolute value of a hyperparameter.
LARGEST_VALUE = 1e300
# Whole numbers must be below this. Above it, floats (and JSON in other languages) cannot hold every whole number.
WHOLE_LIMIT = 2**53


def check_rows(rows: ArrayLike, width: int, count: int) -> Array:
    """Row numbers as int64 (T, width), each below ``count``; raises FeedbackError with the first bad comparison."""
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
        message = f"comparison {bad} names rows {table[bad].tolist()}, the features have {row_range(count)}"
        raise FeedbackError(f"{message}; nothing was learned", reason="unknown_item", row=bad)
    return table.astype(np.int64, copy=False)


def shape_of(rows: ArrayLike) -> tuple[int, ...]:
    """The shape of rows, (T, width); (0,) if they are no table, which :func:`check_rows` will say."""
    try:
        return np.shape(rows) or (0,)
    except ValueError:
        return (0,)


def column_of(name: str, values: ArrayLike | None, count: int, expected: str, dtype: DTypeLike | None = None) -> Array:
    """The values that a caller gave for ``count`` comparisons: () if one is for all, otherwise (count,).

    Raises FeedbackError for another shape; ``expected`` says in its message what the value of a comparison should be.
    """
    try:
        column = np.asarray(values, dtype)
    except (TypeError, ValueError) as error:
        raise FeedbackError(f"{name}={quoted(values)}: expected {expected}, or ({count},) of them ({error})") from error
    if column.shape not in ((), (count,)):
        raise FeedbackError(
            f"{name}={quoted(values)} of shape {column.shape}: expected {expected}, or ({count},) of them"
        )
    return column


def tables(
    rows: Array, features: Mapping[str, Array], names: list[str], dtype: np.dtype[Any]
) -> tuple[Array, list[Array]]:
    """Row numbers and matrices in the form that kernels take.

    ``rows`` (T, w) are numbers of rows of the matrices (n, d_i). C-contiguous matrices of ``dtype``, memory maps too,
    are returned as they are. From other matrices only the rows that are named are read and cast, and ``rows`` are
    renumbered accordingly.
    """
    matrices = [np.asarray(features[name]) for name in names]
    if all(matrix.flags.c_contiguous and matrix.dtype == dtype for matrix in matrices):
        return rows, matrices
    touched, renumbered = np.unique(rows, return_inverse=True)
    # A number that is too large for ``dtype`` becomes infinite, and learning refuses its item.
    with np.errstate(over="ignore"):
        cast = [np.ascontiguousarray(matrix[touched], dtype) for matrix in matrices]
    return renumbered.reshape(rows.shape).astype(np.int64), cast


def expect(holds: bool, name: str, got: object, expected: str) -> None:
    """Raise ParameterError unless ``holds``. Its message says that ``name`` is ``got``, and what was ``expected``."""
    if not holds:
        # A number may be what was expected, except that it is too large.
        if isinstance(got, int) and abs(got) >= WHOLE_LIMIT and "'" not in expected:
            expected += ", below 2**53"
        raise ParameterError(f"{name}={quoted(got)}: expected {expected}")


def is_whole(value: object) -> bool:
    """Whether the value is an integer that float64 can hold, and not a bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and abs(int(value)) < WHOLE_LIMIT


def is_number(value: object) -> bool:
    """Whether the value is a finite number, and not a bool."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return False
    return bool(-LARGEST_VALUE <= (value.item() if isinstance(value, np.number) else value) <= LARGEST_VALUE)


def is_one_of(value: object, names: Container[str]) -> bool:
    """Whether the value is a text, and one of these names."""
    return isinstance(value, str) and value in names


def check_given(init: object, dtype: str) -> None:
    """Refuse a start that is neither a name nor arrays by name, of finite numbers that ``dtype`` can hold."""
    expect(isinstance(init, str | Mapping), "init", init, "the name of a start, or arrays by name")
    for name, values in init.items() if isinstance(init, Mapping) else ():
        expect(isinstance(name, str), "init", name, "arrays by name")
        where, expected = f"init[{name!r}]", "finite numbers, of float64 at most"
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise ParameterError(f"{where}: expected {expected} ({error})") from error
        plain = array.dtype.kind in "biuf" and array.dtype.itemsize <= 8
        expect(plain, where, array.dtype, expected)
        expect(bool(np.isfinite(array).all()), where, "a value that is not finite", expected)
        largest = np.abs(array).max(initial=0)
        expect(bool(largest <= np.finfo(dtype).max), where, float(largest), f"numbers that {dtype} can hold")


def nameable(name: object) -> bool:
    """Whether a text can name a tensor: it has no slash, and UTF-8 can encode it."""
    return isinstance(name, str) and "/" not in name and name.encode(errors="ignore").decode() == name


def check_dims(dims: object) -> None:
    """Refuse dimensions that are not a mapping from names to whole numbers of at least 1."""
    sound = isinstance(dims, Mapping) and len(dims) > 0
    for name, size in dims.items() if isinstance(dims, Mapping) else ():
        sound = sound and nameable(name) and is_whole(size) and size > 0
    expect(sound, "dims", dims, "names without a slash and dimensions of at least 1, such as {'color': 81}")


def check_init(init: str | Mapping[str, ArrayLike], dims: Mapping[str, int]) -> None:
    """Refuse a start that is neither a known name nor arrays (r_i, d_i) for exactly these modalities."""
    if isinstance(init, str):
        expect(init in STARTS, "init", init, f"one of {', '.join(STARTS)}, or arrays")
        return
    expect(set(init) == set(dims), "init of modalities", sorted(init), f"arrays for {sorted(dims)}")
    for name, array in init.items():
        shape = np.shape(array)
        sound = len(shape) == 2 and shape[0] > 0 and shape[1] == dims[name]
        expect(sound, f"init[{name!r}]", shape, f"finite numbers of shape (r, {dims[name]})")


def check_shapes(init: Mapping[str, ArrayLike], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a start that is not finite arrays of exactly these shapes, by modality."""
    expect(set(init) == set(shapes), "init", sorted(init), f"arrays for {sorted(shapes)}")
    for name, array in init.items():
        shape = tuple(map(int, shapes[name]))
        sound = np.shape(array) == shape and bool(np.isfinite(array).all())
        expect(sound, f"init[{name!r}]", np.shape(array), f"finite numbers of shape {shape}")


def check_rate(name: str, rate: object) -> None:
    """Refuse a rate that is not a finite number above 0."""
    expect(is_number(rate) and rate > 0, name, rate, "a rate above 0")  # type: ignore[operator]


def check_step(step: object) -> None:
    """Refuse a kind of step other than ``"pa"`` (capped) and ``"ogd"`` (at a fixed rate)."""
    expect(is_one_of(step, ("pa", "ogd")), "step", step, "'pa' or 'ogd'")


def not_started(what: str) -> NotStarted:
    """The error if ``what`` is asked of a learner that has not started."""
    advice = "call start(features) or learn_many, or give init as arrays"
    return NotStarted(f"{what}: this learner has not started: {advice}")
