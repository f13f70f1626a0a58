"""Where the parts of a history are summed up: in processes of this machine, or on Spark.

An engine gets a job and its pieces, and answers the chunks of each piece, in the order of the pieces. It decides
nothing else, so any program that can call a function for each piece is one: with Dask,
``client.map(partial(sum_up, job), pieces)``.
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
    from pyspark.sql import SparkSession

# Pieces for each processor that are summed up before their sums are added: this much waits in memory.
PIECES_A_PROCESSOR = 2


class Engine(Protocol):
    """Sums up pieces somewhere."""

    def __call__(self, job: Job, pieces: Sequence[Piece]) -> Iterator[list[Chunk]]:
        """The chunks of each piece, in the order of the pieces."""


def alone(job: Job, pieces: Sequence[Piece]) -> Iterator[list[Chunk]]:
    """Sum up one piece after another in this process."""
    for piece in pieces:
        yield sum_up(job, piece)


class Processes:
    """Sums up on several processors of this machine."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, job: Job, pieces: Sequence[Piece]) -> Iterator[list[Chunk]]:
        """Start the processes, and end them with the last piece."""
        if self.count == 1:
            yield from alone(job, pieces)
            return
        # Not forked: threads of BLAS and of clients do not survive a fork.
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
        One that is open; None opens one and closes it in the end.
    master
        Where to open one, such as ``local[4]``; empty: what Spark itself is configured with.
    """

    def __init__(self, session: SparkSession | None = None, master: str = "") -> None:
        self._session, self._master = session, master

    def __call__(self, job: Job, pieces: Sequence[Piece]) -> Iterator[list[Chunk]]:
        """Collect wave after wave of pieces."""
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
    """A Spark session; raises ConfigurationError if pyspark or Java is missing."""
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigurationError("--engine spark needs PySpark: pip install 'omdml[spark]'") from error
    # Executors of this machine run the Python that omdml is installed in.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("omdml bootstrap")
    if master.startswith("local"):
        # Everything is in this machine: nobody else needs to reach it.
        loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        builder = builder.config(map={**loopback, "spark.ui.enabled": "false"})
    try:
        return (builder.master(master) if master else builder).getOrCreate()
    except PySparkException as error:
        raise ConfigurationError(f"Spark does not start ({error}): it needs Java 17 or newer") from error


def _waves(pieces: Sequence[Piece], count: int) -> Iterator[Sequence[Piece]]:
    for start in range(0, len(pieces), count):
        yield pieces[start : start + count]
