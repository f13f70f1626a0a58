"""BLAS and LAPACK inside compiled code compute what numpy and scipy do."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg.lapack import dsygst, ssyevd

from omdml.kernels.second_order.blas import (
    GEMM,
    SSYEVD,
    SYGST,
    SYRK,
    add_products,
    decompose,
    times,
    times_transposed,
    whiten,
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "r", "D"), [(96, 13, 128), (96, 1, 7), (3, 5, 2), (1, 1, 1)])
def test_a_product_with_some_rows_of_a_larger_matrix_is_that_of_numpy(n, r, D, dtype):
    draw = np.random.default_rng(0)
    x, W = draw.normal(0, 1, (n, D)).astype(dtype), draw.normal(0, 1, (2, r + 3, D)).astype(dtype)[1, :r]
    product = np.full((n, r), np.nan, dtype)
    times_transposed(x, W, product, GEMM[dtype])
    tolerances = {"rtol": 1e-5 if dtype == "float32" else 1e-12, "atol": 1e-5}
    np.testing.assert_allclose(product, x @ W.T, **tolerances)

    product = np.full((n, r), np.nan, dtype)
    times(x, np.ascontiguousarray(W.T), product, GEMM[dtype])
    np.testing.assert_allclose(product, x @ W.T, **tolerances)


@pytest.mark.parametrize(("n", "d"), [(64, 40), (3, 130), (1, 1)])
def test_products_are_added_to_the_upper_triangle_alone(n, d):
    draw = np.random.default_rng(0)
    x, total = draw.normal(0, 1, (n, d)), draw.normal(0, 1, (d, d))
    before = total.copy()
    add_products(x, 0.5, 0.9, total, SYRK)
    expected = np.triu(0.9 * before + 0.5 * x.T @ x) + np.tril(before, -1)
    np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 33, 140])
def test_whitening_and_decomposing_give_the_bytes_that_scipy_gives(d):
    draw = np.random.default_rng(d)
    near, other = (x.T @ x / len(x) for x in (draw.normal(0, 0.9, (3 * d, d)), draw.normal(0, 1, (3 * d, d))))
    L = np.linalg.cholesky(near + 0.05 * np.eye(d)).copy(order="F")
    expected, _ = dsygst(other, L, lower=1)
    whitened = other.copy(order="F")
    whiten(whitened, L, SYGST)
    assert (np.tril(whitened) == np.tril(expected)).all()

    vectors, values = np.tril(expected).astype(np.float32, order="F"), np.empty(d, np.float32)
    expected_values, expected_vectors, _ = ssyevd(vectors, lower=1)
    assert decompose(vectors, values, SSYEVD)
    assert (values == expected_values).all()
    assert (vectors == expected_vectors).all()


def test_a_matrix_without_eigenvectors_is_reported():
    assert not decompose(np.full((3, 3), np.nan, np.float32, order="F"), np.empty(3, np.float32), SSYEVD)
