"""A question to the cluster, with a limit to how long its answer is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

import kafka.errors

Answer = TypeVar("Answer")


class Question(Generic[Answer]):
    """A question that is asked on a thread of its own: the administration client waits ten seconds for an answer.

    Parameters
    ----------
    ask
        Asks, waits as long as it takes, and returns the answer.
    """

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self._ask = ask
        self._pending: Future[Answer] | None = None

    def answer(self, limit_s: float, late: bool = False) -> Answer:
        """Ask, and return the answer; raises KafkaTimeoutError if none comes in time, and what asking raised.

        With ``late`` an answer that came too late for an earlier call will do, and nothing new is asked while one may
        still come.
        """
        if self._pending is None or not late:
            self._pending = Future()
            # A thread that waits must not keep the process from ending.
            threading.Thread(target=self._run, args=(self._pending,), name="kafka-question", daemon=True).start()
        future = self._pending
        if not wait([future], limit_s).done:
            raise kafka.errors.KafkaTimeoutError(f"no answer within {limit_s:g} s")
        self._pending = None
        return future.result()

    def drop(self) -> None:
        """Wait no longer for an answer that may still come."""
        self._pending = None

    def _run(self, future: Future[Answer]) -> None:
        try:
            future.set_result(self._ask())
        except BaseException as error:
            future.set_exception(error)
