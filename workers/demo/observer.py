"""Watches a crowd at work on a node, and measures how good the answers are."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np

from omdml.client import Live
from omdml.workers.demo.people.crowd import Crowd, Task
from omdml.workers.demo.people.ground_truth import Truth
from omdml.workers.demo.people.unmarked_queries import UnmarkedQueries
from omdml.workers.demo.screen import Figures, Show
from omdml.workers.demo.services.node_client import NodeClient

LOOK_EVERY_S = 0.25
# Seconds from the end of one measurement to the beginning of the next. Each costs the node time.
MEASURE_EVERY_S = 3.0
# If the version has not changed for this many seconds, it is the last one.
STILL_S = 2.0
# The same while everybody waits for a measurement. By then the worker has learned what was sent.
SETTLED_S = 0.5


class Measure(NamedTuple):
    """A measure of the answers to test queries: its name, and the function that takes it."""

    name: str
    take: Callable[[UnmarkedQueries], float]


class Learned(NamedTuple):
    """What only the store knows about a model."""

    mistake_rate: float | None = None
    weights: Mapping[str, float] = {}


class Observer:
    """Shows figures while a crowd is at work, until the node knows everything that was sent.

    Parameters
    ----------
    truths
        What people know, one truth for each task. The measure is the mean over them.
    learned
        Called at every look; returns what the store knows.
    check
        Called at every look; raises if something has gone wrong elsewhere.

    Raises
    ------
    ClientError
        Every method raises it if the node does not answer.
    """

    def __init__(
        self,
        task: Task,
        truths: Sequence[Truth],
        measure: Measure,
        learned: Callable[[], Learned] = Learned,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._task, self._measure, self._learned, self._check = task, measure, learned, check
        self._client, self._measuring_client = NodeClient(task.url), NodeClient(task.url)
        self._tasks = [truth.task for truth in truths]
        self._unmarked = [UnmarkedQueries(self._measuring_client, task.model, truth) for truth in truths]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="measure")
        self._before: list[float] = []
        self._now: list[float] = []
        self._first_version, self._since = 0, 0.0
        self._looks: list[tuple[int, float]] = []
        self._measuring: Future[list[float]] | None = None
        self._measured_at = 0.0
        # How many comparisons had been sent when the shown measurement began, and when the one under way began.
        self._measured, self._measuring_since = 0, 0

    def __enter__(self) -> Self:
        """Measure how good the answers are before any feedback."""
        try:
            self._measure_now(0)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        served = self._served()
        self._before, self._first_version, self._since = self._now, served.version, served.live_since
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        self._client.close()
        self._measuring_client.close()

    def watch(self, crowd: Crowd, show: Show) -> Figures:
        """Show figures until everything that the crowd sent is live, or no more of it goes live; returns the last."""
        still_since, version = time.monotonic(), -1
        while crowd.at_work or time.monotonic() - still_since < STILL_S:
            figures = self._look(crowd)
            show(figures)
            if figures.version != version or (crowd.at_work and not crowd.waits):
                still_since, version = time.monotonic(), figures.version
            if not crowd.at_work and version - self._first_version >= crowd.sent:
                break
            if crowd.waits and time.monotonic() - still_since >= SETTLED_S:
                self._measure_now(crowd.sent)
                self._looks.append((crowd.sent, float(np.mean(self._now))))
                crowd.go_on()
            time.sleep(LOOK_EVERY_S)
        self._measure_now(crowd.sent)
        figures = self._look(crowd)
        show(figures)
        return figures

    def _measure_now(self, sent: int) -> None:
        """Measure, and wait for the result. A measurement that is under way is dropped, because it is older."""
        self._measuring = None
        self._now, self._measured_at = self._thread.submit(self._take).result(), time.monotonic()
        self._measured = sent

    def _take(self) -> list[float]:
        return [self._measure.take(queries) for queries in self._unmarked]

    def _look(self, crowd: Crowd) -> Figures:
        self._check()
        self._keep_measuring(crowd.sent)
        served, learned = self._served(), self._learned()
        return Figures(
            sent=crowd.sent,
            of=self._task.comparisons,
            measure=self._measure.name,
            before=float(np.mean(self._before)),
            now=float(np.mean(self._now)),
            measured=self._measured,
            looks=tuple(self._looks),
            tasks={task: change for task, *change in zip(self._tasks, self._before, self._now, strict=True) if task},
            version=served.version,
            freshness=served.freshness,
            mistake_rate=learned.mistake_rate,
            weights=learned.weights,
        )

    def _keep_measuring(self, sent: int) -> None:
        if self._measuring is not None and self._measuring.done():
            self._now, self._measured_at = self._measuring.result(), time.monotonic()
            self._measured, self._measuring = self._measuring_since, None
        if self._measuring is None and time.monotonic() - self._measured_at >= MEASURE_EVERY_S:
            self._measuring, self._measuring_since = self._thread.submit(self._take), sent

    def _served(self) -> Live:
        return self._client.models(self._since).get(self._task.model, Live(self._task.model, ready=False))
