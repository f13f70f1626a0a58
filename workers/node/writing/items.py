"""Changes of items that are sent to a node: durable and answered from before they are acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

import structlog

from omdml.errors import CatalogueError, OmdmlError
from omdml.streams.catalogues.changes.change import Changed, ChangeError, Prepared
from omdml.streams.protocols.catalogue import Catalogue
from omdml.workers.node.metrics import NodeMetrics
from omdml.workers.node.writing.request_queue import RequestQueue

# Changes that are made together. The requests after that wait for the next time.
TOGETHER = 10_000

log = structlog.get_logger(__name__)


class ChangeRequest(NamedTuple):
    """The changes of one request; ``done`` is set when this node answers with them, or if they failed."""

    catalogue: Catalogue
    changes: Prepared
    done: Future[Changed]
    came_at: float


def count_changes(request: ChangeRequest) -> int:
    """How many changes a request asks for."""
    return len(request.changes.entries)


class ItemWriter:
    """Takes changes from any number of threads. One thread makes all waiting changes together.

    Parameters
    ----------
    take_in
        Returns when this node answers with everything that its catalogues hold.
    """

    def __init__(self, take_in: Callable[[], None], metrics: NodeMetrics) -> None:
        self._take_in, self._metrics = take_in, metrics
        self._queue = RequestQueue("omdml-items", self._make_each, CatalogueError, size=count_changes, most=TOGETHER)
        self.start, self.close = self._queue.start, self._queue.close

    @property
    def alive(self) -> bool:
        """Whether changes are being made, and none hangs."""
        return self._queue.alive

    def put(self, catalogue: Catalogue, changes: Prepared) -> Future[Changed]:
        """Queue changes; the future gives their result once they are durable and this node answers with them.

        The future raises ChangeError if they cannot be made. It raises CatalogueError if they were not made, or if that
        is not known; sending them again does no harm. Raises CatalogueError if too many requests wait already.
        """
        done: Future[Changed] = Future()
        self._queue.put(ChangeRequest(catalogue, changes, done, time.perf_counter()))
        return done

    def _make_each(self, requests: list[ChangeRequest]) -> None:
        by_catalogue: dict[int, list[ChangeRequest]] = {}
        for request in requests:
            by_catalogue.setdefault(id(request.catalogue), []).append(request)
        for group in by_catalogue.values():
            self._make(group)

    def _make(self, group: list[ChangeRequest]) -> None:
        """Make the changes of some requests to one catalogue, take them in, then acknowledge each."""
        try:
            results = group[0].catalogue.change([request.changes for request in group])
            self._take_in()
        except Exception as error:
            refusal = error if isinstance(error, OmdmlError) else CatalogueError(f"the catalogue failed: {error!r}")
            action = "their senders get an error, and send again"
            log.error("items_not_changed", error=str(error), requests=len(group), action=action)
            for request in group:
                request.done.set_exception(refusal)
            return
        for request, result in zip(group, results, strict=True):
            self._metrics.items_changed(result, time.perf_counter() - request.came_at)
            if isinstance(result, ChangeError):
                request.done.set_exception(result)
            else:
                request.done.set_result(result)
