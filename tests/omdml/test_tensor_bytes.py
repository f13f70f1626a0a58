"""Arrays as safetensors: our bytes are the library's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from omdml.tensor_bytes import TYPES, to_safetensors

KINDS = [*TYPES, np.dtype("float16"), np.dtype("bool"), np.dtype("int8"), np.dtype(">f4")]
ARRAYS = st.tuples(st.sampled_from(KINDS), st.lists(st.integers(0, 3), max_size=3))
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=9).filter(lambda name: name != "__metadata__")


@given(st.dictionaries(NAMES, ARRAYS, max_size=8), st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_bytes_are_those_of_the_library(arrays, text):
    draw = np.random.default_rng(len(arrays))
    tensors = {name: draw.integers(0, 2, shape).astype(kind) for name, (kind, shape) in arrays.items()}
    assert to_safetensors(tensors, {"omdml": text}) == save(tensors, {"omdml": text})


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_the_library_reads_what_was_written(kind):
    tensors = {"a": np.arange(6, dtype=kind).reshape(2, 3), "b": np.zeros((0, 4), kind)}
    loaded = load(to_safetensors(tensors, {"omdml": "{}"}))
    assert {name: (tensor.shape, tensor.tolist()) for name, tensor in loaded.items()} == {
        name: (tensor.shape, tensor.tolist()) for name, tensor in tensors.items()
    }
