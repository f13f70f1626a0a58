"""What learners, their starts and decoders refuse, in an error of ours and before anything else happens."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest

from omdml import LOMDML
from omdml.errors import CorruptError, ParameterError, StartError
from omdml.initial import STARTS, start_matrices
from omdml.learners import LEARNERS
from omdml.snapshot import Checkpoint, Snapshot, pack, unpack

DIMS = {"color": 3, "shape": 4}
everyone = pytest.mark.parametrize("name", sorted(LEARNERS))


@pytest.mark.parametrize("bad", [{"average": 10**30}, {"seed": 2**200}, {"rank": 2**53}], ids=str)
def test_a_whole_hyperparameter_that_float64_cannot_hold_is_refused(bad):
    with pytest.raises(ParameterError, match=r"below 2\*\*53"):
        LOMDML(dims=DIMS, **bad)


@everyone
@pytest.mark.parametrize("array", [np.eye(3) * 1j, np.eye(3, dtype=np.longdouble), [["1"] * 3] * 3, [[1], [1, 2]]])
def test_a_start_of_anything_but_plain_numbers_is_refused(name, array):
    with pytest.raises(ParameterError, match=r"init\['color'\].*finite numbers"):
        LEARNERS[name](dims={"color": 3}, init={"color": array})


@everyone
@pytest.mark.parametrize("dims", [{"\ud800": 3}, {"color": 2**53}, {"color": 3, "a/b": 1}])
def test_a_modality_that_no_tensor_can_be_named_after_is_refused(name, dims):
    with pytest.raises(ParameterError, match="dims"):
        LEARNERS[name](dims=dims)


@pytest.mark.parametrize("init", STARTS)
@pytest.mark.parametrize("size", [1e155, 1e300, -1e200, np.inf, np.nan])
def test_a_start_from_numbers_whose_squares_overflow_is_refused_naming_the_row(init, size):
    table = np.random.default_rng(0).normal(0, 1, (50, 3))
    table[7, 1] = size
    with pytest.raises(StartError, match=r"row 7 of modality 'color'.*column 1"):
        start_matrices({"color": table}, {"color": 2}, init, 0)
    table[7, 1] = 1e139
    assert np.isfinite(start_matrices({"color": table}, {"color": 2}, init, 0)["color"]).all()


@everyone
def test_a_start_from_no_rows_is_refused_without_a_warning(name):
    learner, nothing = LEARNERS[name](dims=DIMS), {modality: np.empty((0, dim)) for modality, dim in DIMS.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(StartError, match="no item to start from"):
            learner.start(nothing)


@pytest.mark.parametrize("data", [None, 5, "text", [1]], ids=repr)
@pytest.mark.parametrize("decode", [LOMDML.from_bytes, Snapshot.from_bytes, Checkpoint.from_bytes])
def test_what_is_no_bytes_is_refused_as_such(decode, data):
    with pytest.raises(CorruptError, match=f"got {type(data).__name__}, expected bytes"):
        decode(data)


def state_of(name):
    """Arrays of a learner that has begun, and what is said of them."""
    draw = np.random.default_rng(0)
    learner = LEARNERS[name](dims=DIMS)
    learner.start({modality: draw.normal(0, 1, (100, dim)) for modality, dim in DIMS.items()})
    arrays, described = unpack(learner.to_bytes())
    return arrays, {part: described[part] for part in ("learner", "parameters")}


@everyone
@pytest.mark.parametrize("counts", [[17, 20, 0, 0], [-1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 2, 0], [0, 0, 0, -1]], ids=str)
def test_a_state_of_counts_that_no_learning_leads_to_is_refused(name, counts):
    arrays, described = state_of(name)
    with pytest.raises(CorruptError, match="counts are"):
        LEARNERS[name].from_bytes(pack({**arrays, "counts": np.array(counts)}, described))


@everyone
def test_a_state_that_claims_more_than_it_holds_takes_no_memory(name):
    arrays, described = state_of(name)
    described["parameters"]["dims"] = {**DIMS, "color": 10**9}
    tracemalloc.start()
    with pytest.raises(CorruptError, match=r"expected \d{10,}"):
        LEARNERS[name].from_bytes(pack(arrays, described))
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
