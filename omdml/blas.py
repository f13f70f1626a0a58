"""One BLAS thread: two threads give other bytes, and are slower on small matrices.

Computations that do not depend on each other may run on several threads, because that changes no byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

_always = False
# Runs a function on several things, as ``map`` does.
_apply: Callable[..., Iterable[Any]] = map
Thing = TypeVar("Thing")
Made = TypeVar("Made")


@cache
def _controller() -> ThreadpoolController:
    # It knows the BLAS of scipy only if that is loaded before. Only who computes waits for that.
    import scipy.linalg.cython_blas  # noqa: F401

    return ThreadpoolController()


def stay_on_one_blas_thread() -> None:
    """From now on every BLAS call of the process runs on one thread."""
    global _always
    _controller().limit(limits=1, user_api="blas")
    _always = True


def one_blas_thread() -> AbstractContextManager[object]:
    """Within this context every BLAS call of the process runs on one thread (20 us, unless they all do)."""
    if _always:
        return nullcontext()
    limited: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limited


def lend_threads(apply: Callable[..., Iterable[Any]]) -> None:
    """From now on every BLAS call runs on one thread, but independent computations run by ``apply``, as by ``map``."""
    global _apply
    stay_on_one_blas_thread()
    _apply = apply


def side_by_side(compute: Callable[[Thing], Made], things: Iterable[Thing]) -> list[Made]:
    """What ``compute`` makes of each thing; on several threads, if the process lent some."""
    return list(_apply(compute, things))
