"""Describes many pictures in parallel, with one process for each processor."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path

from omdml.errors import CatalogueError
from omdml.streams.bounded_files import read_regular
from omdml.streams.describers.describer import Described, Describer, PictureDescriber
from omdml.streams.describers.pictures import MAX_FILE_BYTES, PictureError, open_picture

# Pictures in one part of the work, and parts that are handed out for each process at a time.
TOGETHER, AHEAD = 16, 4
# Up to this many pictures are described in this process: others would take longer to start.
FEW = 64

# Each picture's vectors and thumbnail, or why there are none.
Outcome = Described | str
_describer: PictureDescriber | None = None


def describe_files(describer: PictureDescriber, paths: Sequence[Path]) -> Iterator[Outcome]:
    """Describe these files, in their order. For a damaged file the outcome is the reason, and the others go on.

    Raises CatalogueError if a process is killed, for example because memory runs out.
    """
    if len(paths) <= FEW:
        yield from (describe_file(describer, path) for path in paths)
        return
    processes = len(os.sched_getaffinity(0))
    parts = [paths[start : start + TOGETHER] for start in range(0, len(paths), TOGETHER)]
    with _pool(describer, processes) as pool:
        try:
            # Not all at once: what is done early would wait in memory for what comes before it.
            for start in range(0, len(parts), processes * AHEAD):
                for outcomes in pool.map(_describe_part, parts[start : start + processes * AHEAD]):
                    yield from outcomes
        except BrokenProcessPool as error:
            raise CatalogueError(
                f"a process that describes pictures was killed, after picture {start * TOGETHER} of {len(paths)}: "
                "look for a lack of memory in the system's log, and build again"
            ) from error


def describe_file(describer: PictureDescriber, path: Path) -> Outcome:
    """Describe one file, or say why it cannot be described."""
    try:
        return describer.describe(open_picture(read_regular(path, MAX_FILE_BYTES)))
    except OSError as error:
        return error.strerror or str(error)
    except PictureError as error:
        return str(error)


@contextmanager
def _pool(describer: PictureDescriber, processes: int) -> Iterator[ProcessPoolExecutor]:
    # A process that is forked from one with threads may hang, so each starts from nothing.
    context = multiprocessing.get_context("spawn")
    data = Describer(describer, {}).to_bytes()
    pool = ProcessPoolExecutor(processes, context, _begin, (data,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(data: bytes) -> None:
    """Prepare this process: it leaves Ctrl-C to its parent, and ends when that is gone."""
    global _describer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _describer = Describer.from_bytes(data).pictures


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _describe_part(paths: Sequence[Path]) -> list[Outcome]:
    assert _describer is not None
    return [describe_file(_describer, path) for path in paths]
