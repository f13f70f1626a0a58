"""One BLAS thread: two threads give other bytes, and are slower on small matrices."""

from __future__ import annotations

from contextlib import AbstractContextManager

import scipy.linalg.cython_blas  # noqa: F401  loaded first, or the controller misses the BLAS of scipy
from threadpoolctl import ThreadpoolController

_controller = ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    """Within this context every BLAS call of the process runs on one thread (11 us to enter)."""
    limited: AbstractContextManager[object] = _controller.limit(limits=1, user_api="blas")
    return limited
