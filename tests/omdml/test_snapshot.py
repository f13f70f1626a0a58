"""Checkpoints and snapshots as bytes: they come back as they were, or are refused."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import formats, snapshot
from omdml.errors import CorruptError
from omdml.metrics import ProjectionMetric
from omdml.snapshot import Checkpoint, Snapshot, header_of, metric_from_bytes, metric_to_bytes, pack, unpack
from tests.support.deep import examples

METRIC = ProjectionMetric(
    {"color": 0.25, "shape": 0.75}, {"color": np.eye(2, 3, dtype=np.float32), "shape": np.full((1, 4), 0.5, np.float32)}
)
SNAPSHOT = Snapshot(
    model="shop", learner="lomdml", version=7, generation="g", event_time=2.0, oldest_event_time=1.0,
    progress={"mistake_rate": 0.1}, metric=METRIC,
)  # fmt: skip
CHECKPOINT = Checkpoint(
    model="shop", home=("t", 3), next=9, version=7, generation="g", configuration="c", platform="p", event_time=None,
    progress={"count": 7}, state=b"state",
)  # fmt: skip
# Its state and its reference are files with checksums of their own.
LEARNED = msgspec.structs.replace(
    CHECKPOINT, state=pack({"sums": np.arange(6.0), "counts": np.arange(4)}, {}), reference=metric_to_bytes(METRIC)
)


def test_a_snapshot_comes_back_with_the_same_metric_and_bytes():
    again = Snapshot.from_bytes(SNAPSHOT.to_bytes())
    items = {"color": np.random.default_rng(0).normal(0, 1, (5, 3)), "shape": np.ones((5, 4))}
    np.testing.assert_array_equal(again.metric.embed(items), METRIC.embed(items))
    assert again.to_bytes() == SNAPSHOT.to_bytes()
    assert (again.version, again.progress, again.metric.weights) == (7, {"mistake_rate": 0.1}, METRIC.weights)


@pytest.mark.parametrize("checkpoint", [CHECKPOINT, LEARNED])
def test_a_checkpoint_comes_back_as_it_was(checkpoint):
    assert Checkpoint.from_bytes(checkpoint.to_bytes()) == checkpoint


def test_what_the_check_of_a_checkpoint_loaded_is_not_loaded_again(monkeypatch):
    loads, load = [], snapshot.load
    monkeypatch.setattr(snapshot, "load", lambda data: loads.append(len(data)) or load(data))
    checkpoint = Checkpoint.from_bytes(LEARNED.to_bytes())
    tensors, _ = unpack(checkpoint.state)
    metric_from_bytes(checkpoint.reference)
    assert len(loads) == 3
    # If the first reader changes its arrays, I expect the next one to have arrays of its own.
    tensors["sums"][:] = 0
    assert unpack(checkpoint.state)[0]["sums"].tolist() == [0, 1, 2, 3, 4, 5]


def test_damage_of_any_byte_of_a_checkpoint_is_noticed():
    sound = LEARNED.to_bytes()
    for place in range(len(sound)):
        with pytest.raises(CorruptError):
            Checkpoint.from_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])


def test_the_state_of_another_checkpoint_is_refused_though_it_is_sound():
    other = pack({"sums": np.ones(6), "counts": np.arange(4)}, {})
    assert len(other) == len(LEARNED.state)
    with pytest.raises(CorruptError, match="sha256 of the tensors"):
        Checkpoint.from_bytes(LEARNED.to_bytes().replace(LEARNED.state, other))


def test_the_header_of_a_checkpoint_differs_if_anything_in_it_differs():
    others = {"next": 10, "state": pack({"sums": np.ones(6), "counts": np.arange(4)}, {}), "reference": b""}
    headers = {bytes(header_of(msgspec.structs.replace(LEARNED, **{name: value}).to_bytes()))
               for name, value in others.items()}  # fmt: skip
    assert len({*headers, bytes(header_of(LEARNED.to_bytes()))}) == 4


def test_the_digest_is_that_of_the_metric_whenever_it_is_published():
    later = Snapshot.from_bytes(SNAPSHOT.to_bytes())
    assert later.packed() == (SNAPSHOT.to_bytes(), SNAPSHOT.digest)
    other = ProjectionMetric({"color": 0.5, "shape": 0.5}, METRIC.matrices)
    assert other.to_tensors()[0].keys() == METRIC.to_tensors()[0].keys()
    assert msgspec.structs.replace(SNAPSHOT, metric=other).digest != later.digest


@settings(max_examples=examples(200))
@given(st.sampled_from([SNAPSHOT, CHECKPOINT, LEARNED]), st.data())
def test_a_flipped_bit_or_a_missing_end_is_refused_or_changes_nothing(thing, data):
    sound = thing.to_bytes()
    cut = data.draw(st.integers(0, len(sound)))
    bad = bytearray(sound[:cut]) if data.draw(st.booleans()) else bytearray(sound)
    if len(bad) == len(sound):
        bad[data.draw(st.integers(0, len(bad) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        again = type(thing).from_bytes(bytes(bad))
    except CorruptError:
        return
    original = unpack(sound)[0]
    for name, tensor in unpack(again.to_bytes())[0].items():
        np.testing.assert_array_equal(tensor, original[name])


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data):
    for kind in (Checkpoint, Snapshot):
        with pytest.raises(CorruptError):
            kind.from_bytes(data)


def test_a_position_that_was_tampered_with_is_refused():
    data = CHECKPOINT.to_bytes()
    assert data.count(b'\\"next\\":9') == 1
    with pytest.raises(CorruptError, match="metadata is not what was written"):
        Checkpoint.from_bytes(data.replace(b'\\"next\\":9', b'\\"next\\":5'))


def test_arrays_in_any_memory_order_are_kept_by_value():
    matrix = np.arange(12.0).reshape(3, 4)
    tensors, _ = unpack(pack({"t": matrix.T, "strided": matrix[:, ::2]}, {}))
    np.testing.assert_array_equal(tensors["t"], matrix.T)
    np.testing.assert_array_equal(tensors["strided"], matrix[:, ::2])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value):
    with pytest.raises(CorruptError, match="not finite"):
        unpack(pack({"w": np.array([1.0, value])}, {}))


def test_a_kind_of_metric_from_the_future_is_refused_by_name():
    data = pack({"w": np.ones(2)}, {"snapshot": {}, "metric": {"kind": "hyperbolic"}}, formats.SNAPSHOT)
    with pytest.raises(CorruptError, match=r"'hyperbolic'.*projection"):
        Snapshot.from_bytes(data)
