"""The condition of a process, for its probes and for systemd."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Self

TICK_S = 1.0
# Seconds that a start may take. Compiling kernels takes one to three minutes, and systemd's units allow as long as
# this.
START_LIMIT_S = 300.0
SOCKET, WATCHDOG, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


class Condition(NamedTuple):
    """The condition of a process now.

    ``started``: it does its work, or would if what it needs were there. ``alive``: it makes progress, so starting it
    again would not help. ``ready``: it does what it is there for. ``stopping``: it was told to end. ``status`` says all
    that in a sentence.
    """

    started: bool
    alive: bool
    ready: bool
    stopping: bool
    status: str


STARTING = Condition(started=False, alive=True, ready=False, stopping=False, status="starting")


class ConditionSource:
    """Where probes and systemd's messenger ask how the process is; ``starting`` until there is something to ask.

    A process that has not started after ``START_LIMIT_S`` is not alive.
    """

    def __init__(self) -> None:
        self.ask: Callable[[], Condition] = lambda: STARTING
        self._since = time.monotonic()

    def __call__(self) -> Condition:
        now, starting_s = self.ask(), time.monotonic() - self._since
        if now.started or starting_s < START_LIMIT_S:
            return now
        return now._replace(alive=False, status=f"stuck: it has been starting for {starting_s:.0f} s, restart it")


class Messenger:
    """Tells systemd of the process (sd_notify), if it runs under a unit of ``Type=notify``: otherwise it does nothing.

    READY once it started, STATUS when it changes, STOPPING once it is told to end, WATCHDOG at half the unit's
    ``WatchdogSec`` for as long as it makes progress.
    """

    def __init__(self, condition: Callable[[], Condition]) -> None:
        self._condition = condition
        self._sent: set[str] = set()
        self._status = ""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="omdml-systemd", daemon=True)

    def __enter__(self) -> Self:
        if os.environ.get(SOCKET):
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()
            self.tell()

    def tell(self) -> None:
        """Send what is new, and that the process is alive."""
        condition = self._condition()
        lines = [
            line
            for line, holds in (("READY=1", condition.started), ("STOPPING=1", condition.stopping))
            if holds and line not in self._sent
        ]
        new = set(lines)
        if condition.status != self._status:
            lines.append(f"STATUS={' '.join(condition.status.split())}")
        if condition.alive:
            lines.append("WATCHDOG=1")
        # A READY that was not taken would have systemd end a process that has started.
        if send(lines):
            self._sent |= new
            self._status = condition.status

    def _run(self) -> None:
        pause = pause_s()
        while not self._closed.wait(pause):
            self.tell()


def pause_s() -> float:
    """Seconds between two messages: at most half of what the watchdog of this process allows."""
    microseconds = os.environ.get(WATCHDOG, "")
    is_ours = os.environ.get(WATCHDOG_PID, str(os.getpid())) == str(os.getpid())
    return min(TICK_S, int(microseconds) / 2e6) if is_ours and microseconds.isdigit() and int(microseconds) else TICK_S


def send(lines: list[str]) -> bool:
    """Send these lines to systemd; False if it cannot take them now."""
    address = os.environ.get(SOCKET, "")
    if not address or not lines:
        return False
    # A name that begins with @ does not name a file: the @ stands for a byte NUL.
    place = f"\0{address[1:]}" if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as speaker:
        speaker.setblocking(False)
        speaker.sendto("\n".join(lines).encode(), place)
        return True
    return False
