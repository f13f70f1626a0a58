"""Learners that were learned apart, added up in order."""

from __future__ import annotations

import numpy as np
import pytest

from omdml import DCA, merge
from omdml.batch.sums import emptied, merged
from omdml.errors import ParameterError
from tests.support.learning.dca import learner, world
from tests.support.learning.parts import same_sums, summed_in_order


def apart(features, rows, sizes, **options):
    """A learner at its start, and a copy of it for each piece of these rows that has learned the piece."""
    start = learner(features, **options)
    start.start(features)
    pieces = np.split(rows, np.cumsum(sizes)[:-1])
    learned = []
    for piece in pieces:
        model = DCA.from_bytes(start.to_bytes())
        if len(piece):
            model.learn_many(piece, features)
        learned.append(model)
    return start, learned


@pytest.mark.parametrize("sizes", [(70, 30, 50), (1, 0, 149), (150,)])
def test_sums_are_those_of_all_parts_added_in_order(sizes):
    features, rows, *_ = world(3)
    start, learned = apart(features, rows, sizes)
    total = merged(start, iter(learned))
    assert same_sums(total, summed_in_order(part for part in learned if part.version))
    assert (total.version, total.mistakes) == (150, sum(part.mistakes for part in learned))
    assert DCA.from_bytes(total.to_bytes()).to_bytes() == total.to_bytes()
    assert merged(start, learned).to_bytes() == total.to_bytes()
    assert start.version == 0
    assert total.hedge_loss <= total.hedge_loss_bound


def test_two_parts_serve_what_merge_serves():
    features, rows, *_ = world(4)
    start, (first, second) = apart(features, rows, (80, 70))
    ours, theirs = merged(start, [first, second]).metric.to_tensors()[0], merge(first, second).metric.to_tensors()[0]
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_no_part_at_all_is_the_start():
    features, *_ = world(5)
    start, _ = apart(features, np.empty((0, 3), np.int64), (0,))
    assert merged(start, []).to_bytes() == start.to_bytes()


def test_what_a_learner_began_with_is_known_from_it():
    features, rows, *_ = world(6)
    start, (part,) = apart(features, rows, (150,))
    assert emptied(part).to_bytes() == start.to_bytes()
    assert part.version == 150


def test_parts_of_other_items_and_starts_that_fade_are_refused():
    features, rows, *_ = world(7)
    start, (part,) = apart(features, rows, (150,))
    elsewhere, *_ = world(8)
    strange, _ = apart(elsewhere, rows, (0,))
    with pytest.raises(ParameterError, match="different items"):
        merged(start, [strange])
    with pytest.raises(ParameterError, match="memory"):
        merged(apart(features, rows, (0,), memory=50)[0], [])
    with pytest.raises(ParameterError, match="at its start"):
        merged(part, [])
