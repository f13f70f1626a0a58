"""A file of attributes that is read again when it changes."""

from __future__ import annotations

import threading
import time

import structlog

from omdml.errors import CatalogueError
from omdml.streams.disk import stamp
from omdml.workers.node.attributes.table import Attributes, read_attributes

# Seconds between two looks at the file.
LOOK_S = 1.0

log = structlog.get_logger(__name__)


class FollowedAttributes:
    """The attributes of a file, at most a second old. Any number of threads may ask; one of them reads it again.

    A file that is replaced whole (written under another name, then renamed) is never read half-written. If the file
    cannot be read, what was read before stays, and the log says so once.

    Raises CatalogueError if it cannot be read at first.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._reading = threading.Lock()
        self._seen = stamp(path)
        self._now = read_attributes(path)
        self._looked = time.monotonic()

    def __call__(self) -> Attributes:
        if time.monotonic() - self._looked >= LOOK_S and self._reading.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._reading.release()
        return self._now

    def _look(self) -> None:
        self._looked = time.monotonic()
        current = stamp(self._path)
        if current == self._seen:
            return
        self._seen = current
        try:
            self._now = read_attributes(self._path)
        except CatalogueError as error:
            action = "filters go on with what was read before"
            log.warning("attributes_unreadable", path=self._path, error=str(error), action=action)
        else:
            log.info("attributes_read", path=self._path, items=self._now.count - 1)
