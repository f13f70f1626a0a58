"""One BLAS thread: two threads give other bytes, and are slower on small matrices.

Computations that do not depend on each other may run on several threads, because that changes no byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

# Whether every BLAS call of the process runs on one thread.
_always = False
# Calls a function with each of some arguments, as ``map`` does.
_apply: Callable[..., Iterable[Any]] = map
Thing = TypeVar("Thing")
Result = TypeVar("Result")


@cache
def _controller() -> ThreadpoolController:
    # The controller finds the BLAS of scipy only if scipy has loaded it. It is loaded here, and not above, so that only
    # processes that compute wait for it.
    import scipy.linalg.cython_blas  # noqa: F401

    return ThreadpoolController()


def stay_on_one_blas_thread() -> None:
    """From now on every BLAS call of the process runs on one thread."""
    global _always
    _controller().limit(limits=1, user_api="blas")
    _always = True


def one_blas_thread() -> AbstractContextManager[object]:
    """Within this context every BLAS call of the process runs on one thread.

    To enter and leave it takes 20 us, or nothing after :func:`stay_on_one_blas_thread`.
    """
    if _always:
        return nullcontext()
    limited: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limited


def lend_threads(apply: Callable[..., Iterable[Any]]) -> None:
    """From now on every BLAS call runs on one thread, but ``apply`` may run independent computations on several.

    It is called as ``map`` is.
    """
    global _apply
    stay_on_one_blas_thread()
    _apply = apply


def side_by_side(compute: Callable[[Thing], Result], things: Iterable[Thing]) -> list[Result]:
    """The results of ``compute`` for all things; on several threads, if :func:`lend_threads` was called."""
    return list(_apply(compute, things))
