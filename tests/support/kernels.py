"""``python -m tests.support.kernels`` compiles every kernel that no cache holds, for tests that run side by side."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

from omdml.learners import LEARNERS
from omdml.workers.configuration.warm_up import announce_compiling, warm_up

DTYPES = ("float32", "float64")


def compiled(dtype: str) -> None:
    """Compile the kernels of all learners for one type of number."""
    announce_compiling()
    warm_up((name, dtype) for name in LEARNERS)


if __name__ == "__main__":
    with ProcessPoolExecutor(len(DTYPES)) as pool:
        list(pool.map(compiled, DTYPES))
