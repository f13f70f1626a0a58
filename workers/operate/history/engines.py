"""Engines that sum up the parts of a history: processes on this machine, Spark, or Dask.

An engine gets a job and its pieces, and returns the chunks of each piece, in the order of the pieces. It decides
nothing else. So anything that can call a function for each piece can be an engine.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Protocol

from omdml.errors import ConfigurationError
from omdml.workers.operate.history.archived import Piece
from omdml.workers.operate.history.sums import Chunk, Job, sum_up

if TYPE_CHECKING:
    from distributed import Client
    from pyspark.sql import SparkSession

# Pieces for each processor that are summed up before their sums are added. So many wait in memory.
PIECES_A_PROCESSOR = 2


class HistoryEngine(Protocol):
    """Sums up pieces, wherever it likes."""

    def __call__(self, job: Job, pieces: Sequence[Piece]) -> Iterator[list[Chunk]]:
        """Sum up these pieces; yields the chunks of each piece, in the order of the pieces."""


def alone(job: Job, pieces: Sequence[Piece]) -> Iterator[list[Chunk]]:
    """Sum up one piece after another in this process."""
    for piece in pieces:
        yield sum_up(job, piece)


class Processes:
    """Sums up on several processors of this machine."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, job: Job, pieces: Sequence[Piece]) -> Iterator[list[Chunk]]:
        """Start the processes, and end them after the last piece."""
        if self.count == 1:
            yield from alone(job, pieces)
            return
        # Processes are not forked, because threads of BLAS and of clients do not survive a fork.
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.count, spawn, initializer=_remember, initargs=(job,)) as pool:
            for wave in _waves(pieces, self.count * PIECES_A_PROCESSOR):
                yield from pool.map(_sum_up, wave)


_job: list[Job] = []


def _remember(job: Job) -> None:
    _job[:] = [job]


def _sum_up(piece: Piece) -> list[Chunk]:
    return sum_up(_job[0], piece)


class Spark:
    """Sums up on the executors of a Spark session, which need omdml and see the files and the catalogue.

    Parameters
    ----------
    session
        An open session; None opens one, and closes it at the end.
    master
        The master of a new session, such as ``local[4]``. If it is empty, Spark's own configuration decides.
    """

    def __init__(self, session: SparkSession | None = None, master: str = "") -> None:
        self._session, self._master = session, master

    def __call__(self, job: Job, pieces: Sequence[Piece]) -> Iterator[list[Chunk]]:
        """Sum up the pieces in waves, so that only one wave is in memory."""
        session = self._session or opened(self._master)
        try:
            context = session.sparkContext
            shared = context.broadcast(job)
            for wave in _waves(pieces, context.defaultParallelism * PIECES_A_PROCESSOR):
                yield from context.parallelize(wave, len(wave)).map(lambda piece: sum_up(shared.value, piece)).collect()
            shared.destroy()
        finally:
            if self._session is None:
                session.stop()


def opened(master: str) -> SparkSession:
    """Open a Spark session; raises ConfigurationError if PySpark or Java is missing."""
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigurationError("--engine spark needs PySpark: pip install 'omdml[spark]'") from error
    # Executors of this machine run the Python that omdml is installed in.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("omdml bootstrap")
    if master.startswith("local"):
        # Everything runs on this machine, so no other needs to reach it.
        loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        builder = builder.config(map={**loopback, "spark.ui.enabled": "false"})
    try:
        return (builder.master(master) if master else builder).getOrCreate()
    except PySparkException as error:
        raise ConfigurationError(f"Spark does not start ({error}): it needs Java 17 or newer") from error


class Dask:
    """Sums up on the workers of a Dask cluster, which need omdml and see the files and the catalogue.

    Parameters
    ----------
    scheduler
        The address of the cluster's scheduler, such as ``tcp://host:8786``.
    """

    def __init__(self, scheduler: str) -> None:
        self._scheduler = scheduler

    def __call__(self, job: Job, pieces: Sequence[Piece]) -> Iterator[list[Chunk]]:
        """Sum up the pieces in waves, so that only one wave is in memory."""
        with _client(self._scheduler) as client:
            shared = client.scatter(job, broadcast=True)
            for wave in _waves(pieces, sum(client.nthreads().values()) * PIECES_A_PROCESSOR):
                yield from client.gather([client.submit(sum_up, shared, piece) for piece in wave])


def _client(scheduler: str) -> Client:
    try:
        from distributed import Client
    except ImportError as error:
        raise ConfigurationError("--engine dask needs Dask: pip install 'omdml[dask]'") from error
    try:
        return Client(scheduler)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"no scheduler of Dask answers at {scheduler}: {error}") from error


def _waves(pieces: Sequence[Piece], count: int) -> Iterator[Sequence[Piece]]:
    for start in range(0, len(pieces), count):
        yield pieces[start : start + count]
