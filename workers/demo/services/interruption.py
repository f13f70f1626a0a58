"""Ctrl-C and SIGTERM: end, but take everything down first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """A signal asked to end; no ``except Exception`` on the way stops it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it, signals raise Interrupted. For the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def shielded() -> Iterator[None]:
    """Within it, signals wait for its end. For the main thread, around what must not be left half done.

    Starting a process is of that kind also because Python drops what is raised while it forks.
    """
    heard: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: heard.append(number)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if heard:
            signal.raise_signal(heard[0])
