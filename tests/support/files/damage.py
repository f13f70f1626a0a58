"""Damage drawn by hypothesis: bits flip, ends are missing, numbers are absurd."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]

# A block inside this may raise one of these errors, or none. Any other error fails the test.
raises_at_most = contextlib.suppress

ABSURD = [-1, 0, 1, 17, 2**31, 2**53, 10**18, 2**63 - 1, -(2**63), 10**30, -0.5, 1e38, 1e300, "", "\0", "é" * 300]
# The last ones are larger than any file: numpy counts bytes in 63 bits.
SIZES = [0, 1, 2, 3, 16, 17, 10**6, 10**12, 10**14]
DTYPES = ["float32", "float64", "int64", "int8", "uint8", "bool"]
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8), st.sampled_from(ABSURD)
)
things = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def damaged(samples: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Any bytes, or one of these samples with bits flipped, parts missing, parts of another in it."""
    return st.one_of(st.binary(max_size=300), spoilt(samples))


@st.composite
def spoilt(draw: Draw, samples: Sequence[bytes]) -> bytes:
    """A sample with one to four damages."""
    data = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(1, 4))):
        begin, end = sorted(draw(st.integers(0, len(data))) for _ in range(2))
        match draw(st.sampled_from(["flip", "cut", "splice", "again", "write"])):
            case "flip" if begin < len(data):
                data = data[:begin] + bytes([data[begin] ^ 1 << draw(st.integers(0, 7))]) + data[begin + 1 :]
            case "cut":
                data = data[:begin] + data[end:]
            case "splice":
                data = data[:begin] + draw(st.sampled_from(samples))[begin:end] + data[end:]
            case "again":
                data = data[:end] + data[begin:]
            case "write":
                data = data[:begin] + draw(st.binary(max_size=16)) + data[begin:]
    return data


@st.composite
def altered(draw: Draw, whole: Any) -> Any:
    """A value of JSON in which one part is changed, removed or added."""
    keys = list(whole) if isinstance(whole, dict) else list(range(len(whole))) if isinstance(whole, list) else []
    if not keys or draw(st.integers(0, 9)) == 0:
        return draw(things)
    copy, key = whole.copy(), draw(st.sampled_from(keys))
    match draw(st.sampled_from(["inside", "inside", "inside", "gone", "added"])):
        case "gone":
            del copy[key]
        case "added" if isinstance(copy, dict):
            copy[draw(st.sampled_from(keys) | st.text(max_size=8))] = draw(things)
        case _:
            copy[key] = draw(altered(copy[key]))
    return copy


@st.composite
def altered_arrays(draw: Draw, whole: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays by name, of which one is changed, removed or renamed."""
    arrays, name = dict(whole), draw(st.sampled_from(sorted(whole)))
    array = arrays.pop(name)
    match draw(st.sampled_from(["number", "number", "number", "type", "size", "hollow", "gone", "renamed"])):
        case "number" if array.size:
            arrays[name] = array.copy()
            arrays[name].flat[draw(st.integers(0, array.size - 1))] = draw(numbers(array.dtype))
        case "type":
            arrays[name] = array.astype(draw(st.sampled_from(DTYPES)))
        case "size":
            shape = draw(st.lists(st.integers(0, 4), max_size=3))
            arrays[name] = np.full(shape, draw(numbers(array.dtype)), array.dtype)
        case "hollow":
            # An array without bytes that claims any size: its first dimension is 0.
            others = draw(st.permutations([*array.shape[1:], draw(st.sampled_from(SIZES))]))
            arrays[name] = np.empty([0, *others], array.dtype)
        case "renamed":
            arrays[draw(st.sampled_from(sorted(whole)) | st.text(max_size=8))] = array
    return arrays


def numbers(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    """Numbers of this type, with the ends of its range among them."""
    if dtype.kind == "f":
        width = 32 if dtype.itemsize == 4 else 64
        return st.floats(width=width, allow_nan=False, allow_infinity=False)
    if dtype.kind == "b":
        return st.booleans()
    ends = np.iinfo(dtype)
    return st.integers(int(ends.min), int(ends.max)) | st.integers(max(-3, int(ends.min)), 40) | st.just(int(ends.max))
