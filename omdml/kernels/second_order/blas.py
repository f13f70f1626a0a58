"""BLAS and LAPACK of scipy (``scipy.linalg.cython_blas``, ``cython_lapack``) inside compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic

from omdml.kernels import Array

# Compiled code is cached on disk, and the address differs between processes. So callers pass it as an argument.
GEMM = {
    name: np.uint64(get_cython_function_address("scipy.linalg.cython_blas", function))
    for name, function in {"float32": "sgemm", "float64": "dgemm"}.items()
}
SYRK = np.uint64(get_cython_function_address("scipy.linalg.cython_blas", "dsyrk"))
SYGST, SSYEVD = (
    np.uint64(get_cython_function_address("scipy.linalg.cython_lapack", name)) for name in ("dsygst", "ssyevd")
)
TRANSPOSED, NOT_TRANSPOSED, LOWER = np.uint8(ord("T")), np.uint8(ord("N")), np.uint8(ord("L"))
VECTORS = np.uint8(ord("V"))


@intrinsic
def call(typing: Any, address: Any, arguments: Any) -> Any:
    """Call the Fortran routine at ``address`` (uint64).

    In the tuple ``arguments``, a uint64 is the address of an array. Everything else is passed by reference, as Fortran
    expects.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        pointers = []
        for kind, value in zip(signature.args[1], cgutils.unpack_tuple(builder, values[1]), strict=True):
            if kind == types.uint64:
                pointers.append(builder.inttoptr(value, byte))
            else:
                pointers.append(builder.bitcast(cgutils.alloca_once_value(builder, value), byte))
        routine = ir.FunctionType(ir.VoidType(), [byte] * len(pointers))
        builder.call(builder.inttoptr(values[0], routine.as_pointer()), pointers)
        return context.get_dummy_value()

    return types.void(address, arguments), generate


@njit(cache=True)
def times_transposed(x: Array, W: Array, product: Array, gemm: int) -> None:
    """``product = x @ W.T``.

    Parameters
    ----------
    x : (n, D)
    W : (r, D), r >= 1
    product : (n, r)
        Written. All three are C-contiguous and of one type.
    gemm
        The entry of ``GEMM`` for that type.
    """
    alpha, beta = x.dtype.type(1), x.dtype.type(0)
    n, r, D = np.int32(x.shape[0]), np.int32(W.shape[0]), np.int32(x.shape[1])
    x_address, W_address = np.uint64(x.ctypes.data), np.uint64(W.ctypes.data)
    product_address = np.uint64(product.ctypes.data)
    # Fortran stores matrices by columns, so it sees the transpose of each: product' = W x'.
    call(gemm, (TRANSPOSED, NOT_TRANSPOSED, r, n, D, alpha, W_address, D, x_address, D, beta, product_address, r))


@njit(cache=True)
def times(x: Array, columns: Array, product: Array, gemm: int) -> None:
    """``product = x @ columns``: for small matrices BLAS may take two thirds of the time of ``times_transposed``.

    Parameters
    ----------
    x : (n, D)
    columns : (D, r), r >= 1
    product : (n, r)
        Written. All three are C-contiguous and of one type.
    gemm
        The entry of ``GEMM`` for that type.
    """
    alpha, beta = x.dtype.type(1), x.dtype.type(0)
    n, r, D = np.int32(x.shape[0]), np.int32(columns.shape[1]), np.int32(x.shape[1])
    x_address, columns_address = np.uint64(x.ctypes.data), np.uint64(columns.ctypes.data)
    product_address = np.uint64(product.ctypes.data)
    # Fortran sees the transpose of each: product' = columns' x'.
    plain = NOT_TRANSPOSED
    call(gemm, (plain, plain, r, n, D, alpha, columns_address, r, x_address, D, beta, product_address, r))


@njit(cache=True)
def add_products(x: Array, factor: float, weight: float, total: Array, syrk: int) -> None:
    """``total = weight total + factor x' x``, of which only the upper triangle is read and written.

    Parameters
    ----------
    x : (n, d)
        C-contiguous, float64.
    total : (d, d)
        Changed in place; C-contiguous, float64.
    syrk
        ``SYRK``.
    """
    n, d = np.int32(x.shape[0]), np.int32(x.shape[1])
    x_address, total_address = np.uint64(x.ctypes.data), np.uint64(total.ctypes.data)
    # Fortran stores matrices by columns: its lower triangle is our upper one, and it sees x' where we have x.
    call(syrk, (LOWER, NOT_TRANSPOSED, d, n, factor, x_address, d, weight, total_address, d))


@njit(cache=True, nogil=True)
def whiten(T: Array, L: Array, sygst: int) -> None:
    """``T = L^-1 T L'^-1``, for a symmetric T, of which only the lower triangle is read and written.

    Parameters
    ----------
    T, L : (d, d)
        Stored by columns, float64. T is changed in place. L is lower triangular, with a positive diagonal.
    sygst
        ``SYGST``.
    """
    d, info = np.int32(T.shape[0]), np.zeros(1, np.int32)
    T_address, L_address = np.uint64(T.ctypes.data), np.uint64(L.ctypes.data)
    call(sygst, (np.int32(1), LOWER, d, T_address, d, L_address, d, np.uint64(info.ctypes.data)))


@njit(cache=True, nogil=True)
def decompose(matrix: Array, values: Array, syevd: int) -> bool:
    """Replace a symmetric matrix, of which only the lower triangle is read, by its eigenvectors, in columns.

    Parameters
    ----------
    matrix : (d, d)
        Stored by columns, float32. Changed in place.
    values : (d,)
        Written: the eigenvalues, smallest first; float32.
    syevd
        ``SSYEVD``.

    Returns
    -------
    Whether LAPACK found the eigenvectors.
    """
    d, info = np.int32(matrix.shape[0]), np.zeros(1, np.int32)
    # The working space that LAPACK asks for. With more of it, LAPACK would compute other bytes.
    work, integers = np.empty(1 + 6 * d + 2 * d * d, np.float32), np.empty(3 + 5 * d, np.int32)
    matrix_address, values_address = np.uint64(matrix.ctypes.data), np.uint64(values.ctypes.data)
    work_address, integers_address = np.uint64(work.ctypes.data), np.uint64(integers.ctypes.data)
    sizes = np.int32(work.shape[0]), np.int32(integers.shape[0])
    call(
        syevd,
        (VECTORS, LOWER, d, matrix_address, d, values_address, work_address, sizes[0], integers_address, sizes[1],
         np.uint64(info.ctypes.data)),
    )  # fmt: skip
    return info[0] == 0
