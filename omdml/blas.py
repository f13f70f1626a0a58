"""One BLAS thread: two threads give other bytes, and are slower on small matrices."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import scipy.linalg.cython_blas  # noqa: F401  loaded first, or the controller misses the BLAS of scipy
from threadpoolctl import ThreadpoolController

_controller = ThreadpoolController()
_always = False


def stay_on_one_blas_thread() -> None:
    """From now on every BLAS call of the process runs on one thread."""
    global _always
    _controller.limit(limits=1, user_api="blas")
    _always = True


def one_blas_thread() -> AbstractContextManager[object]:
    """Within this context every BLAS call of the process runs on one thread (20 us, unless they all do)."""
    if _always:
        return nullcontext()
    limited: AbstractContextManager[object] = _controller.limit(limits=1, user_api="blas")
    return limited
