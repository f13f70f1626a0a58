"""How many different items were seen: close, whatever their order, and the same for the same items."""

from __future__ import annotations

import math

import numpy as np
import pytest

from omdml.engines.second_order.distinct import SLOTS, distinct, mark


def marked(items, *more):
    """The bits that these items set."""
    seen = np.zeros(SLOTS // 8, np.uint8)
    for batch in (items, *more):
        mark(seen, batch, np.ones(len(batch), bool))
    return seen


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 30, 1_000, 10_000])
def test_the_number_of_items_is_estimated_within_a_few_percent(count, dtype):
    items = np.random.default_rng(count).normal(0, 1, (count, 5)).astype(dtype)
    assert distinct(marked(items)) == pytest.approx(count, rel=0.05)


def test_items_that_come_again_in_any_order_count_once():
    items = np.random.default_rng(0).normal(0, 1, (500, 4)).astype(np.float32)
    once = marked(items)
    assert marked(items[::-1], items[:200], items).tobytes() == once.tobytes()
    assert (marked(items[:300]) | marked(items[200:])).tobytes() == once.tobytes()


def test_items_that_differ_in_one_number_are_told_apart():
    items = np.zeros((100, 50), np.float32)
    items[:, 7] = np.arange(100)
    assert distinct(marked(items)) == pytest.approx(100, rel=0.05)


def test_nothing_is_no_items_and_more_than_can_be_told_apart_is_any_number():
    assert distinct(np.zeros(SLOTS // 8, np.uint8)) == 0
    assert distinct(np.full(SLOTS // 8, 255, np.uint8)) == math.inf
