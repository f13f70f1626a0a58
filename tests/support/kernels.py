"""``python -m tests.support.kernels`` compiles every kernel that no cache holds, for tests that run side by side."""

from __future__ import annotations

import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# Older numba has no public names for its places to cache.
from numba.core.caching import _CacheLocator

from omdml.learners import LEARNERS
from omdml.workers.configuration.warm_up import announce_compiling, warm_up, warm_up_searches
from tests.support.processes import ROOT

DTYPES = ("float32", "float64")


def compiled(dtype: str) -> None:
    """Compile the kernels of all learners for one type of number, and once those of searches, which are for both."""
    announce_compiling()
    warm_up((name, dtype) for name in LEARNERS)
    if dtype == DTYPES[0]:
        warm_up_searches()


def copy_kernels(cache: Path, source: Path, left_out: str) -> None:
    """Fill a cache of numba's for the code in ``source`` with the compiled kernels, but for the one of this name.

    So what is tested compiles one kernel, not all of them, which takes half a minute.
    """
    ignored = shutil.ignore_patterns(f"{left_out}-*", "*.pyc")
    for compiled_here in (ROOT / "omdml/kernels").rglob("__pycache__"):
        module = source / compiled_here.parent.relative_to(ROOT) / "__init__.py"
        folder = cache / _CacheLocator.get_suitable_cache_subpath(str(module))
        shutil.copytree(compiled_here, folder, ignore=ignored)


if __name__ == "__main__":
    with ProcessPoolExecutor(len(DTYPES)) as pool:
        list(pool.map(compiled, DTYPES))
