"""Runs what a worker need not wait for: the store's part of a save."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class AtOnce(Executor):
    """Runs everything before it returns: for stores that one thread uses at a time."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """A future that is done."""
        done: Future[Any] = Future()
        try:
            done.set_result(call(*arguments, **options))
        except Exception as error:
            done.set_exception(error)
        return done
