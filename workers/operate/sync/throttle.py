"""Limits how many rows are written per second."""

from __future__ import annotations

import threading
import time

# The most rows in one transaction. A kill can undo no more than these.
MOST_ROWS = 1_000
# A throttled batch has the rows of at most this many seconds, so that the database can do other work in between.
BATCH_S = 0.5


class Throttle:
    """Makes a writer wait before each batch, so that it writes at most this many rows per second.

    Parameters
    ----------
    rows_per_second
        The most rows per second; None means no limit.
    stop
        Ends every wait when it is set.
    """

    def __init__(self, rows_per_second: float | None, stop: threading.Event) -> None:
        self._rate, self._stop = rows_per_second, stop
        self._free_at = time.monotonic()

    @property
    def batch(self) -> int:
        """How many rows to write at once."""
        return MOST_ROWS if self._rate is None else max(1, min(MOST_ROWS, int(self._rate * BATCH_S)))

    def wait(self, rows: int) -> bool:
        """Wait until this many rows may be written; False if the process was asked to stop."""
        if self._rate is not None:
            now = time.monotonic()
            self._stop.wait(max(0.0, self._free_at - now))
            self._free_at = max(self._free_at, now) + rows / self._rate
        return not self._stop.is_set()
