"""Searches that come at the same moment are answered together: one scan of the items serves many of them.

Reading all items takes most of a search's time, and reading them for sixteen queries takes little longer than for one.
No search waits for later ones: small searches are grouped with those that arrived in the same turn of the event loop,
big ones with those that arrived while every processor was busy with earlier ones.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

from omdml.workers.node.galleries.gallery import AT_ONCE, Query
from omdml.workers.node.node import RetrievalNode
from omdml.workers.node.searching.answers import Answers, Paging
from omdml.workers.node.searching.options import Options
from omdml.workers.node.view import View

# Numbers that a scan reads. Fewer take under 0.2 ms, and the hop to a thread costs as much.
INLINE_WORK = 3_000_000
# Items of all answers together; so many take about a millisecond. With more, the event loop would compute the answers
# of all searches at hand before it sends the first of them, and hold them all in memory.
INLINE_ITEMS = 1000


class Asked(NamedTuple):
    """What searches must have in common to be answered together, beside the view."""

    k: int
    task: str | None
    page: Paging
    options: Options


class _Group(NamedTuple):
    """Searches that share one scan: the queries of each search, and the future that its client waits for."""

    view: View
    asked: Asked
    queries: list[Sequence[Query]]
    answers: list[asyncio.Future[Answers]]

    @property
    def size(self) -> int:
        """How many queries all requests bring together."""
        return sum(map(len, self.queries))

    @property
    def is_small(self) -> bool:
        """Whether to answer it on the event loop, because a hop to a thread would take about as long."""
        scanned = self.view.work * max(map(len, self.queries))
        return scanned <= INLINE_WORK and self.size * self.asked.k <= INLINE_ITEMS


Key = tuple[int, Asked]


class SharedScans:
    """Answers the searches of one node."""

    def __init__(self, node: RetrievalNode) -> None:
        self._node = node
        # Groups that others may still join. A group holds its view, so the view's identity is not used again.
        self._open: dict[Key, _Group] = {}
        # Groups of big searches that wait for a thread.
        self._queue: deque[tuple[Key, _Group]] = deque()
        self._scans: set[asyncio.Task[None]] = set()
        self._most_scans = os.cpu_count() or 1

    async def answers(self, view: View, queries: Sequence[Query], asked: Asked) -> Answers:
        """Search for all of these queries; raises SearchError."""
        key, loop = (id(view), asked), asyncio.get_running_loop()
        group = self._open.get(key)
        if group is None or group.size + len(queries) > AT_ONCE:
            group = self._open[key] = _Group(view, asked, [], [])
            loop.call_soon(self._begin, key, group)
        group.queries.append(queries)
        group.answers.append(loop.create_future())
        return await group.answers[-1]

    def _begin(self, key: Key, group: _Group) -> None:
        """Answer a group now, or as soon as a thread is free for it."""
        if group.is_small:
            self._close(key, group)
            _settle(group, _results_of(self._node, group))
        elif len(self._scans) < self._most_scans:
            self._close(key, group)
            task = asyncio.get_running_loop().create_task(self._in_thread(group))
            self._scans.add(task)
            task.add_done_callback(self._next)
        else:
            self._queue.append((key, group))

    def _close(self, key: Key, group: _Group) -> None:
        if self._open.get(key) is group:
            del self._open[key]

    def _next(self, scan: asyncio.Task[None]) -> None:
        self._scans.discard(scan)
        while self._queue:
            key, group = self._queue.popleft()
            # A server that stops cancels its requests. What began after that would be ended by nobody, and its thread
            # would keep the process from ending.
            if not all(answer.done() for answer in group.answers):
                self._begin(key, group)
                return
            self._close(key, group)

    async def _in_thread(self, group: _Group) -> None:
        _settle(group, await run_in_threadpool(_results_of, self._node, group))


def _results_of(node: RetrievalNode, group: _Group) -> list[Answers | Exception]:
    """The answer to each search of a group, or the error that it failed with.

    If the shared scan fails, each search is run alone, so that only the failing one gets an error.
    """
    # A bridge answers one query after the other anyway, and some queries by the version before.
    if len(group.queries) > 1 and group.view.origin is None:
        try:
            return [*node.answers_together(group.view, group.queries, *group.asked)]
        except Exception:
            # One search of the group failed. They are answered one by one below, so that each gets its own error.
            pass
    answers: list[Answers | Exception] = []
    for queries in group.queries:
        try:
            answers.append(node.answers(group.view, queries, *group.asked))
        except Exception as error:
            answers.append(error)
    return answers


def _settle(group: _Group, results: Sequence[Answers | Exception]) -> None:
    for answer, result in zip(group.answers, results, strict=True):
        if answer.done():
            # The client went away.
            continue
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result(result)
