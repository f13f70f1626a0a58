"""Matrix products inside compiled code are those that numpy makes."""

from __future__ import annotations

import numpy as np
import pytest

from omdml.kernels.second_order.blas import GEMM, SYRK, add_products, times_transposed


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "r", "D"), [(96, 13, 128), (96, 1, 7), (3, 5, 2), (1, 1, 1)])
def test_a_product_with_some_rows_of_a_larger_matrix_is_that_of_numpy(n, r, D, dtype):
    draw = np.random.default_rng(0)
    x, W = draw.normal(0, 1, (n, D)).astype(dtype), draw.normal(0, 1, (2, r + 3, D)).astype(dtype)[1, :r]
    product = np.full((n, r), np.nan, dtype)
    times_transposed(x, W, product, GEMM[dtype])
    np.testing.assert_allclose(product, x @ W.T, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-5)


@pytest.mark.parametrize(("n", "d"), [(64, 40), (3, 130), (1, 1)])
def test_products_are_added_to_the_upper_triangle_alone(n, d):
    draw = np.random.default_rng(0)
    x, total = draw.normal(0, 1, (n, d)), draw.normal(0, 1, (d, d))
    before = total.copy()
    add_products(x, 0.5, 0.9, total, SYRK)
    expected = np.triu(0.9 * before + 0.5 * x.T @ x) + np.tril(before, -1)
    np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-12)
