"""Triplets of DCA that count for less than one, because their event stands for several (MATHS 12 (m))."""

from __future__ import annotations

import numpy as np
import pytest

from omdml import DCA
from omdml.errors import FeedbackError
from omdml.formats import STATE, Format
from omdml.snapshot import pack, unpack
from tests.support.learning.dca import learner, world


def test_triplets_of_weight_one_are_triplets_without_a_weight():
    features, rows, *_ = world(30)
    plain, weighed = learner(features), learner(features)
    plain.learn_many(rows, features)
    weighed.learn_many(rows, features, weight=np.ones(len(rows)))
    assert weighed.to_bytes() == plain.to_bytes()


def test_four_triplets_of_weight_a_quarter_count_in_the_sums_as_one():
    features, rows, *_ = world(31, events=40)
    once, four_times = learner(features, dtype="float64"), learner(features, dtype="float64")
    once.learn_many(rows, features)
    four_times.learn_many(np.repeat(rows, 4, axis=0), features, weight=0.25)
    ours, theirs = four_times._engine.moments(), once._engine.moments()
    for name in ("near", "far", "middle", "centre", "seen"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ours.sums, theirs.sums * [1, 0.25, 1])
    assert (once.version, four_times.version) == (40, 160)


@pytest.mark.parametrize("weight", [0.0, -1.0, 1.5, 1e-9, np.nan, np.inf])
def test_a_weight_out_of_range_is_refused_and_nothing_is_learned(weight):
    features, rows, *_ = world(32)
    model = learner(features)
    model.learn_many(rows[:50], features)
    before = model.to_bytes()
    with pytest.raises(FeedbackError, match=r"comparison 2 has weight .*, expected 1e-06 to 1; nothing was") as caught:
        model.learn_many(rows[50:54], features, weight=[1, 0.5, weight, 1])
    assert caught.value.row == 2
    with pytest.raises(FeedbackError, match=r"of shape \(3,\): expected a number, or \(4,\)"):
        model.learn_many(rows[50:54], features, weight=[1, 0.5, 1])
    assert model.to_bytes() == before


def test_triplets_of_an_open_block_that_an_earlier_release_wrote_count_for_one():
    features, rows, *_ = world(33)
    # Fewer coordinates than numbers, whose sums mean the same in every number of the format.
    model = learner(features, rank=11)
    model.learn_many(rows[:21], features)
    tensors, described = unpack(model.to_bytes())
    description = {name: described[name] for name in ("learner", "parameters")}
    older = {name: array for name, array in tensors.items() if name != "weights"}
    assert DCA.from_bytes(pack(older, description, Format(STATE.what, 3))).to_bytes() == model.to_bytes()
