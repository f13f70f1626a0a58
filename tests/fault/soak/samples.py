"""What processes hold, as the kernel tells it, again and again; and whether that grows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

EVERY_S = 5.0
MB = 1e6


class Sample(NamedTuple):
    """What a process held: ``at`` is seconds since the beginning."""

    at: float
    pid: int
    memory_mb: float
    files: int
    threads: int


class Measure(NamedTuple):
    """Something that a process holds.

    Parameters
    ----------
    most
        By how much it may be more in the last quarter of the time than in the second one: a share, and so many more.
    """

    told: str
    field: str
    share: float
    most: float


# Faults come in turn, and one that is at work in one quarter has a few more connections open than none.
MEASURES = (
    Measure("memory, MB", "memory_mb", 0.05, 5.0),
    Measure("open files", "files", 0.0, 4.0),
    Measure("threads", "threads", 0.0, 2.0),
)


def sample(pid: int, at: float) -> Sample:
    """What a process holds now; raises OSError if it is gone."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Sample(at, pid, int(status["VmRSS"].split()[0]) * 1024 / MB, files, int(status["Threads"]))


class Sampler(threading.Thread):
    """Looks at processes until :meth:`end`; ``samples`` are those of each by its name."""

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        super().__init__()
        self._pids, self._enough, self._began = pids, threading.Event(), time.monotonic()
        self.samples: dict[str, list[Sample]] = {}
        self.start()

    def run(self) -> None:
        while True:
            for name, pid in self._pids().items():
                self._look(name, pid)
            if self._enough.wait(EVERY_S):
                return

    def _look(self, name: str, pid: int) -> None:
        try:
            seen = sample(pid, time.monotonic() - self._began)
        except (OSError, KeyError):
            # It was just killed: one that is no more has no memory.
            return
        self.samples.setdefault(name, []).append(seen)

    def end(self) -> None:
        """Look no more."""
        self._enough.set()
        self.join()


def quarters(samples: Sequence[Sample], field: str) -> list[float]:
    """The median of each quarter of the time, by what was measured; those of a quarter without any are left out."""
    end = samples[-1].at
    parts: list[list[float]] = [[], [], [], []]
    for one in samples:
        parts[min(3, int(4 * one.at / end)) if end else 0].append(getattr(one, field))
    return [median(part) for part in parts if part]


def lived_throughout(samples: Sequence[Sample]) -> bool:
    """Whether it is one process from the first sample to the last."""
    return len({one.pid for one in samples}) == 1


def growth(samples: Sequence[Sample], measure: Measure) -> str:
    """A sentence if a process holds more and more of something, otherwise empty.

    What it holds in the first quarter is not looked at: models come into memory, and caches fill.
    """
    _, second, _, last = quarters(samples, measure.field)
    if last <= second * (1 + measure.share) + measure.most:
        return ""
    return f"{measure.told} went from {second:g} to {last:g}"
