"""How a node follows its store: hints at once, pointers every second, and patience while it is out of reach."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

import structlog

from omdml.errors import StoreError
from omdml.streams.protocols.store import SnapshotStore, Watch
from omdml.workers.node.following.live_pointers import Refresher
from omdml.workers.node.following.remarks import Remarks

# After this many seconds without a turn nobody knows whether models are up to date.
OVERDUE_S = 5.0
# How long a stop may have to wait for the thread, seconds.
HINT_WAIT_S = 0.2
# The thread counts as stuck after so many seconds without a turn. That is longer than the timeouts of any store, and
# than most embeddings take.
STUCK_AFTER_S = 60.0
# A thread that computes for more than this share of the time is not stuck. A very large gallery takes minutes to embed.
# If that counted as stuck, a supervisor would end the node at each start. On a busy machine it computes seldom.
COMPUTING = 0.05

log = structlog.get_logger(__name__)


class Follower:
    """One thread that refreshes models when the store hints at them, and all of them now and then.

    Parameters
    ----------
    named
        Models to follow in any case. All models with a view are followed, too.
    poll_interval_s
        Seconds between two looks at every pointer: hints may be lost.
    """

    def __init__(
        self, store: SnapshotStore, refresher: Refresher, named: Iterable[str], poll_interval_s: float = 1.0
    ) -> None:
        self._store, self._refresher, self._named = store, refresher, frozenset(named)
        self._poll_interval_s = poll_interval_s
        self._watch: Watch | None = None
        self._watched = frozenset[str]()
        self._hinted = frozenset[str]()
        self._remarks = Remarks(store, refresher.live.steps)
        self._polled_at = -math.inf
        self._answered_at = 0.0
        self._lost_at: float | None = None
        self._progressed_at = time.monotonic()
        # The clock of the processor time that the thread took, and what it said when the thread made progress.
        self._clock: int | None = None
        self._computed_s = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="omdml-follow", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the following thread makes progress, or computes."""
        idle_s = time.monotonic() - self._progressed_at
        progresses = idle_s < STUCK_AFTER_S or self._computing_s() > COMPUTING * idle_s
        return self._thread.is_alive() and progresses

    @property
    def overdue_s(self) -> float:
        """Seconds since the thread last finished a turn of its loop; 0 if it is not late."""
        idle = time.monotonic() - self._progressed_at
        return idle if self._thread.is_alive() and idle > OVERDUE_S else 0.0

    @property
    def answered_at(self) -> float:
        """When the store last answered about every model, in seconds since the epoch; 0 if it never did."""
        return self._answered_at

    @property
    def lost(self) -> bool:
        """Whether the store is out of reach."""
        return self._lost_at is not None

    def _computing_s(self) -> float:
        """Seconds of processor time that the thread took since it made progress."""
        # There is no clock before the thread runs, and none after it has ended.
        with suppress(OSError):
            return 0.0 if self._clock is None else time.clock_gettime(self._clock) - self._computed_s
        return 0.0

    def _note_progress(self) -> None:
        self._progressed_at, self._computed_s = time.monotonic(), time.thread_time()

    def _run(self) -> None:
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        while not self._stopped.is_set():
            models = self._named | self._refresher.live.views.keys()
            try:
                due = self._due(models)
                for model in due:
                    # A large gallery takes seconds: a stop waits for one at most.
                    if self._stopped.is_set():
                        break
                    self._refresh(model)
                if due == models:
                    self._answered_at = time.time()
                self._remarks.look(self._hinted)
            except Exception as error:
                # Whether it is a StoreError or a failure that nobody foresaw: the thread must go on.
                self._note_lost(models, error)
                self._stopped.wait(self._poll_interval_s)
            self._note_progress()
        if self._watch is not None:
            self._watch.close()

    def _due(self, models: frozenset[str]) -> frozenset[str]:
        """Wait for hints, and return the models to look at now."""
        if self._watch is None or models != self._watched:
            if self._watch is not None:
                self._watch.close()
            self._watch, self._watched = self._store.watch(models), models
            # What moved before this watch began gave it no hint.
            self._polled_at = -math.inf
        self._hinted = models & self._watch.wait(min(HINT_WAIT_S, self._poll_interval_s))
        if time.monotonic() - self._polled_at < self._poll_interval_s:
            return self._hinted
        self._polled_at = time.monotonic()
        return models

    def _refresh(self, model: str) -> None:
        """Refresh one model. An unexpected failure stops neither the other models nor the thread."""
        try:
            if model in self._named:
                self._refresher.refresh(model)
            else:
                self._refresher.refresh_if_loaded(model)
            self._note_reached()
        except StoreError:
            raise
        except Exception as error:
            self._refresher.fall_behind([model])
            log.exception("refresh_failed", model=model, error=repr(error))
        self._note_progress()

    def _note_lost(self, models: Iterable[str], error: Exception) -> None:
        self._refresher.fall_behind(models)
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            unforeseen = not isinstance(error, StoreError)
            log.error("store_lost", error=str(error), serving="the last good snapshots", exc_info=unforeseen)

    def _note_reached(self) -> None:
        if self._lost_at is not None:
            log.info("store_found", lost_for_s=round(time.monotonic() - self._lost_at, 3))
            self._lost_at = None
