"""Processes that begin with everything imported: for tests that need many short ones, each of its own.

The standard library's fork server imports the modules once for all tests of a run. What it forks then starts within
milliseconds, where a new interpreter takes two seconds of processor time.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.support.worlds", "omdml.streams.catalogues.building.build", "pyarrow.parquet"])
LIMIT_S = 120.0


def ended(target: Callable[..., object], *arguments: object) -> int:
    """The exit code of a process that calls ``target``; minus the signal, if one ended it. Fails if it does not end."""
    process = FORKS.Process(target=target, args=arguments, daemon=True)
    process.start()
    process.join(LIMIT_S)
    try:
        assert process.exitcode is not None, f"{target.__name__} did not end within {LIMIT_S} s"
        return process.exitcode
    finally:
        process.kill()
        process.join()
        process.close()
