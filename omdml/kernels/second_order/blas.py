"""Matrix products inside compiled code, by the BLAS in scipy (``scipy.linalg.cython_blas``)."""

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
TRANSPOSED, NOT_TRANSPOSED, LOWER = np.uint8(ord("T")), np.uint8(ord("N")), np.uint8(ord("L"))


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
