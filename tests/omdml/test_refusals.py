"""What learners, their starts and decoders refuse, in an error of ours and before anything else happens."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest

from omdml import DCA, LOMDML, OMDML, CPmtML, start_from_pairs
from omdml.batch import fit_full
from omdml.coordinates import CoordinateMap
from omdml.errors import CorruptError, FeedbackError, ParameterError, StartError
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
    """Arrays of a learner that has started, and their description."""
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


@everyone
@pytest.mark.parametrize("init", [3, None, np.zeros((2, 3)), ["color"], {1: [[1.0]], "color": [[1.0]]}], ids=repr)
def test_a_start_that_is_neither_a_name_nor_arrays_by_name_is_refused(name, init):
    with pytest.raises(ParameterError, match=r"init=.*arrays"):
        LEARNERS[name](dims={"color": 3}, init=init)


@everyone
def test_a_start_that_the_type_cannot_hold_is_refused(name):
    with pytest.raises(ParameterError, match=r"init\['color'\]=1e\+300: expected numbers that float32 can hold"):
        LEARNERS[name](dims={"color": 3}, init={"color": np.full((3, 3), 1e300)})


@everyone
def test_a_type_that_is_no_text_is_refused(name):
    with pytest.raises(ParameterError, match="dtype="):
        LEARNERS[name](dims=DIMS, dtype=np.dtype("float32"))


def test_an_option_that_is_an_array_is_refused_by_its_name():
    with pytest.raises(ParameterError, match="step="):
        LOMDML(dims=DIMS, step=np.zeros(2))


@pytest.mark.parametrize(("option", "value"), [("weight", "heavy"), ("weight", [1, [2]]), ("similar", [True, [False]])])
def test_what_is_said_of_comparisons_is_refused_by_its_name_if_it_is_no_number(option, value):
    learner, rows = DCA(dims={"color": 3}), [[0, 1]] if option == "similar" else [[0, 1, 2]]
    with pytest.raises(FeedbackError, match=f"{option}="):
        learner.learn_many(rows, {"color": np.eye(3)}, **{option: value})
    assert learner.version == 0


@pytest.mark.parametrize("margin", ["wide", [1, [2]]])
def test_a_margin_that_is_no_number_is_refused(margin):
    with pytest.raises(FeedbackError, match="margin="):
        OMDML(dims={"color": 3}).learn_many([[0, 1, 2]], {"color": np.eye(3)}, margin=margin)


def test_tasks_that_are_no_list_of_names_are_refused():
    with pytest.raises(FeedbackError, match="task="):
        CPmtML(dims={"color": 3}, rank=1).learn_many([[0, 1]], {"color": np.eye(3)}, similar=True, task=["a", ["b"]])


@pytest.mark.parametrize("features", [None, np.eye(3)], ids=["none", "an array"])
def test_features_that_are_not_arrays_by_name_are_refused(features):
    with pytest.raises(FeedbackError, match=r"features are .*expected an array \(n, d\) for each of \['color'\]"):
        DCA(dims={"color": 3}).learn_many([[0, 1, 2]], features)
    metric = LOMDML(dims={"color": 3}, init={"color": np.eye(3)}).metric
    with pytest.raises(FeedbackError, match="features are "):
        metric.score(features, {"color": np.eye(3)})


@pytest.mark.parametrize(
    "features", [None, {}, {"color": np.zeros(4)}, {"color": [[1.0]]}, {"color": np.zeros((4, 0))}]
)
def test_what_takes_its_dimensions_from_features_refuses_other_shapes(features):
    for call in (
        lambda: start_from_pairs([[0, 1]], features),
        lambda: CoordinateMap.fit(features),
        lambda: fit_full([[0, 1, 2]], features),
    ):
        with pytest.raises(FeedbackError, match="features"):
            call()


@pytest.mark.parametrize("landmarks", [2.5, "many"])
def test_numbers_of_a_map_that_are_not_whole_are_refused(landmarks):
    with pytest.raises(ParameterError, match="landmarks="):
        CoordinateMap.fit({"color": np.eye(3)}, landmarks=landmarks)


def test_an_item_that_single_precision_cannot_hold_is_refused_as_such():
    features = {"color": np.random.default_rng(0).normal(0, 1, (9, 3))}
    learner = LOMDML(dims={"color": 3}, rank=2)
    learner.learn_many([[0, 1, 2]], features)
    features["color"][5] = 1e39
    with pytest.raises(
        FeedbackError, match="item in row 5 of modality 'color' holds values that are not finite in float32"
    ):
        learner.learn_many([[3, 4, 5]], features)
    assert learner.version == 1
