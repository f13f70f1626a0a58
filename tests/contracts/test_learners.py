"""The contract of all learners: one suite over everything in LEARNERS."""

from __future__ import annotations

import contextlib
import gc
import pickle
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from omdml import LEARNERS
from omdml.comparisons import Judgement
from omdml.engines.base import Engine
from omdml.errors import FeedbackError, FormatError, NotStarted, StartError
from omdml.formats import STATE
from omdml.snapshot import Snapshot
from omdml.workers.configuration.warm_up import warm_up
from omdml.workers.doctor.checks.rate_check import STEP_SIZES
from tests.support.deep import examples
from tests.support.learning.learner_samples import EVENTS, ITEMS, comparisons, features, learn, small_learner

pytestmark = pytest.mark.parametrize("name", sorted(LEARNERS))


def distances(metric, p, q):
    """The negative scores of pairs of rows under the metric: the higher, the further apart."""
    items = features()
    return np.array([
        -metric.score({n: x[i] for n, x in items.items()}, {n: x[[j]] for n, x in items.items()})[0]
        for i, j in zip(p, q, strict=True)
    ])  # fmt: skip


def snapshot(model):
    """The snapshot that a node gets, read from its bytes."""
    sent = Snapshot(
        model="m", learner=model.name, version=model.version, generation="g", event_time=None, oldest_event_time=None,
        progress={}, metric=model.metric,
    )  # fmt: skip
    return Snapshot.from_bytes(sent.to_bytes())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_chunks_give_the_same_bytes_also_across_a_restart(name, dtype):
    rows, columns = comparisons(name)
    in_one_call, single, chunked = (small_learner(name, dtype=dtype) for _ in range(3))
    learn(in_one_call, rows, columns)
    for t in range(EVENTS):
        single.learn_one(rows[t], features(), **{column: values[t] for column, values in columns.items()})
    draw, start = np.random.default_rng(1), 0
    while start < EVENTS:
        size = int(draw.integers(1, 40))
        learn(chunked, rows, columns, start, start + size)
        chunked = LEARNERS[name].from_bytes(chunked.to_bytes())
        start += size
    assert in_one_call.to_bytes() == single.to_bytes() == chunked.to_bytes()


def test_columns_given_in_any_way_need_one_compiled_kernel(name, monkeypatch):
    rows, columns = comparisons(name)
    model, types = small_learner(name), set()
    model.start(features())
    engine = type(model._engine)
    walk = engine._walk

    def noting_types(self, rows, addresses, columns, scores):
        # numba compiles a kernel once more for arrays that cannot be written to.
        types.add(tuple((column.dtype, column.flags.writeable, column.flags.c_contiguous) for column in columns))
        return walk(self, rows, addresses, columns, scores)

    monkeypatch.setattr(engine, "_walk", noting_types)
    learn(model, rows, columns)
    first = {column: values[0] for column, values in columns.items()}
    model.learn_many(rows, features(), **first)
    model.learn_one(rows[0], features(), **first)
    assert len(types) == 1


def test_learning_moves_the_metric(name):
    rows, columns = comparisons(name)
    model = small_learner(name)
    model.start(features())
    before = model.matrices
    outcome = learn(model, rows, columns)
    assert outcome.scores.shape == (EVENTS,)
    assert outcome.mistakes == model.mistakes
    assert any((before[key] != array).any() for key, array in model.matrices.items())


def test_its_class_says_what_a_step_changes_and_whether_it_embeds(name):
    assert LEARNERS[name].step_changes in (None, *STEP_SIZES), "step_changes of the class"
    rows, columns = comparisons(name)
    model = small_learner(name)
    learn(model, rows, columns)
    assert model.metric.euclidean == (not model.no_embedding), "no_embedding of the class"


def test_a_worker_compiles_it_with_the_small_parameters_of_its_class(name):
    warm_up([(name, "float32")])


def test_version_counts_comparisons(name):
    rows, columns = comparisons(name)
    model = small_learner(name)
    for begin, end in ((0, 7), (7, 7), (7, EVENTS)):
        learn(model, rows, columns, begin, end)
        assert model.version == end
    assert 0 < model.updates <= model.version


def test_inputs_are_untouched(name):
    rows, columns = comparisons(name)
    items = features()
    untouched = {modality: x.copy() for modality, x in items.items()}
    copies = {column: np.copy(values) for column, values in columns.items()}
    learn(small_learner(name), rows, columns, items=items)
    for modality, x in items.items():
        np.testing.assert_array_equal(x, untouched[modality])
    for column, values in columns.items():
        np.testing.assert_array_equal(values, copies[column])


def test_a_clone_is_fresh_and_has_the_same_parameters(name):
    rows, columns = comparisons(name)
    model = small_learner(name, seed=3)
    learn(model, rows, columns)
    twin = model.clone()
    assert (twin.seed, twin.version) == (3, 0)
    with pytest.raises(NotStarted):
        twin.to_bytes()
    learn(twin, rows, columns)
    assert twin.to_bytes() == model.to_bytes()


def test_a_value_that_is_not_finite_leaves_the_state_unchanged(name):
    rows, columns = comparisons(name)
    model = small_learner(name)
    learn(model, rows, columns, 0, 40)
    before = model.to_bytes()
    items = features()
    touched = rows[60].query[0] if "set" in LEARNERS[name].accepts else rows[60][0]
    items["color"][touched] = np.nan
    first = next(t for t in range(40, EVENTS) if touched in np.concatenate([np.ravel(part) for part in flat(rows[t])]))
    with pytest.raises(FeedbackError) as caught:
        learn(model, rows, columns, 40, items=items)
    assert caught.value.row == first - 40
    assert model.to_bytes() == before
    learn(model, rows, columns, 40)
    in_one_call = small_learner(name)
    learn(in_one_call, rows, columns)
    assert model.to_bytes() == in_one_call.to_bytes()


def test_a_first_batch_that_is_interrupted_does_not_decide_the_start(name, monkeypatch):
    rows, columns = comparisons(name)
    model, in_one_call = small_learner(name), small_learner(name)
    with monkeypatch.context() as broken:
        broken.setattr(Engine, "learn", interrupted)
        with pytest.raises(KeyboardInterrupt):
            learn(model, rows, columns, items=features(1))
    for learner in (model, in_one_call):
        learn(learner, rows, columns)
    assert model.to_bytes() == in_one_call.to_bytes()


def interrupted(*_, **__):
    raise KeyboardInterrupt


def flat(row):
    """The row numbers of one comparison."""
    return [row.query, *row.relevant, *row.irrelevant] if isinstance(row, Judgement) else [row]


def test_a_snapshot_says_what_the_learner_says(name):
    rows, columns = comparisons(name)
    model = small_learner(name, dtype="float64")
    learn(model, rows, columns)
    metric = snapshot(model).metric
    draw = np.random.default_rng(2)
    p, q = draw.integers(0, ITEMS, (2, 50))
    np.testing.assert_allclose(distances(metric, p, q), distances(model.metric, p, q), rtol=1e-5, atol=1e-9)
    for task in (None, *metric.tasks):
        if metric.euclidean:
            embedded = metric.embed(features(), task)
            np.testing.assert_allclose(embedded, model.metric.embed(features(), task), rtol=1e-5, atol=1e-6)
            query = {n: x[p[0]] for n, x in features().items()}
            scores = metric.score(query, {n: x[q] for n, x in features().items()}, task)
            np.testing.assert_allclose(((embedded[p[0]] - embedded[q]) ** 2).sum(axis=1), -scores, rtol=1e-5, atol=1e-9)


def test_the_next_score_is_what_the_metric_says_before_it_is_learned(name):
    rows, columns = comparisons(name)
    model = small_learner(name, dtype="float64")
    # DCA scores by what it knew at its last refresh, and version 48 is one
    learn(model, rows, columns, 0, 48)
    metric = model.metric
    row, column = rows[48], {key: values[48] for key, values in columns.items()}
    if isinstance(row, Judgement):
        query, *judged = (metric.embed_sets(features(), part) for part in (row.query[:, None], *row[1:]))
        relevant, irrelevant = (metric.similarities(query, vectors).mean() for vectors in judged)
        expected = irrelevant - relevant
    elif len(row) == 2:
        embedded = metric.embed({n: x[row] for n, x in features().items()}, column["task"] if metric.tasks else None)
        threshold = model.thresholds.get(column["task"], next(iter(model.thresholds.values())))
        expected = (((embedded[0] - embedded[1]) ** 2).sum() - threshold) * (1 if column["similar"] else -1)
    else:
        near, far = ((row[0], row[1]), (row[0], row[2])) if len(row) == 3 else ((row[0], row[1]), (row[2], row[3]))
        expected = distances(metric, [near[0]], [near[1]])[0] - distances(metric, [far[0]], [far[1]])[0]
    assert model.learn_one(row, features(), **column).scores[0] == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_memory_does_not_grow(name):
    # So many that one number kept of each comparison is more than the bound.
    rows, columns = comparisons(name, examples(50))
    model, items = small_learner(name), features()
    tracemalloc.start()
    for _ in range(40):
        learn(model, rows, columns, items=items)
    # What a library keeps once is no growth. A learner that grows does so each time.
    stays = any(growth(lambda: learn(model, rows, columns, items=items)) < 20_000 for _ in range(3))
    tracemalloc.stop()
    assert stays


def growth(work):
    """Bytes of Python's memory that are left after twenty calls."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(20):
        work()
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


def test_features_too_small_for_the_type_are_refused_or_learned_from(name):
    tiny = {modality: x * 1e-30 for modality, x in features().items()}
    model = small_learner(name, dtype="float32")
    with contextlib.suppress(StartError, FeedbackError):
        model.start({modality: x.astype(np.float32) for modality, x in tiny.items()})
        learn(model, *comparisons(name), items=tiny)
    with contextlib.suppress(NotStarted):
        assert all(np.isfinite(matrix).all() for matrix in model.matrices.values())


def test_a_modality_that_the_learner_does_not_have_is_passed_over(name):
    rows, columns = comparisons(name)
    longer = {"price": np.zeros((10 * ITEMS, 2)), **features()}
    assert learn(small_learner(name), rows, columns, items=longer).scores.tolist() == (
        learn(small_learner(name), rows, columns).scores.tolist()
    )


def halfway(name):
    """A learner that has learned the first half of its comparisons, and the rows and columns of all of them."""
    rows, columns = comparisons(name)
    model = small_learner(name)
    learn(model, rows, columns, 0, 48)
    return model, rows, columns


# One process goes on with all of them, because it takes a second to start.
GO_ON = """
import pathlib, pickle, sys
from tests.support.learning.learner_samples import learn

started, items = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
for model, rows, columns in started.values():
    learn(model, rows, columns, 48, items=items)
states = {name: model.to_bytes() for name, (model, _, _) in started.items()}
sys.stdout.buffer.write(pickle.dumps(states))
"""


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """The states of learners that another process went on with, by their names."""
    path = tmp_path_factory.mktemp("pickled") / "learners"
    path.write_bytes(pickle.dumps(({name: halfway(name) for name in LEARNERS}, features())))
    ended = subprocess.run([sys.executable, "-c", GO_ON, str(path)], capture_output=True, check=True)
    return pickle.loads(ended.stdout)


def test_another_process_can_go_on_with_a_pickled_learner(name, resumed):
    """Addresses of compiled code differ from process to process."""
    model, rows, columns = halfway(name)
    learn(model, rows, columns, 48)
    assert resumed[name] == model.to_bytes()


def test_a_pickle_holds_what_to_bytes_writes_and_no_private_name(name):
    model, *_ = halfway(name)
    pickled = pickle.dumps(model)
    assert model.to_bytes() in pickled
    assert b"_engine" not in pickled


def test_a_pickle_of_a_later_format_is_refused(name, monkeypatch):
    model, *_ = halfway(name)
    later = STATE._replace(number=STATE.number + 1)
    with monkeypatch.context() as patch:
        patch.setattr("omdml.snapshot.pack.__defaults__", (later, ""))
        pickled = pickle.dumps(model)
    with pytest.raises(FormatError, match="newer"):
        pickle.loads(pickled)


def test_a_learner_that_has_not_started_can_be_pickled(name):
    rows, columns = comparisons(name)
    model, unpickled = small_learner(name), pickle.loads(pickle.dumps(small_learner(name)))
    for learner in (model, unpickled):
        learn(learner, rows, columns)
    assert unpickled.to_bytes() == model.to_bytes()
