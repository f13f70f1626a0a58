"""Margins of DCA's experts, in compiled code."""

from __future__ import annotations

import numpy as np
import pytest

from omdml.kernels.second_order.experts import margins_of


@pytest.mark.parametrize("power", [-73, -100, -125])
def test_margins_of_tiny_vectors_are_those_of_vectors_of_usual_length(power):
    projected = np.random.default_rng(0).normal(0, 1, (30, 7)).astype(np.float32)
    usual, tiny = np.zeros(10), np.zeros(10)
    margins_of(projected, 0, 7, 0, usual)
    margins_of(projected * np.float32(2.0**power), 0, 7, 0, tiny)
    np.testing.assert_allclose(tiny, usual, rtol=0, atol=1e-6)
