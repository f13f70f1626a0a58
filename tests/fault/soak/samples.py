"""What processes hold, as the kernel tells it, again and again; and whether that grows."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import linear_regression, median
from typing import NamedTuple

from tests.fault.soak.held import MB, place

EVERY_S = 5.0


class Sample(NamedTuple):
    """What a process held: ``at`` is seconds since the beginning.

    Of its memory, ``used_mb`` are in use; the rest it has freed and not given back (held.py).
    """

    at: float
    pid: int
    memory_mb: float
    used_mb: float
    files: int
    threads: int


class Measure(NamedTuple):
    """Something that a process holds.

    Parameters
    ----------
    most
        By how much it may rise, by the straight line through the lowest values of the last half of the time: in an
        hour if it is memory, otherwise in all.
    """

    title: str
    field: str
    most: float
    hourly: bool = False


# Limits are not shares of what is held, which would let a slow leak pass: 5 % of 250 MB in seven minutes are 100 MB an
# hour. A few more open files are allowed, because the fault that is at work at the end may keep connections open.
USED = Measure("memory in use, MB", "used_mb", 20.0, hourly=True)
MEASURES = (
    USED,
    Measure("open files", "files", 4.0),
    Measure("threads", "threads", 2.0),
)


# What the table and the plot show.
SHOWN = (("memory, MB", "memory_mb"), *((measure.title, measure.field) for measure in MEASURES))
# How much memory a process may have freed and not given back, by the medians of the last quarter. The most that was
# ever in use at once bounds it, so it says nothing about a leak.
MOST_FREE_MB = 30.0
# The last half is divided into so many parts. At 1800 seconds a part is longer than a fault on a busy machine.
PARTS = 3


def sample(pid: int, at: float) -> Sample:
    """What a process holds now; raises OSError if it is gone."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    memory_mb, used = int(status["VmRSS"].split()[0]) * 1024 / MB, place(pid)
    # A process that has just begun says nothing yet.
    used_mb = float(used.read_text()) if used.exists() else memory_mb
    return Sample(at, pid, memory_mb, used_mb, files, int(status["Threads"]))


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
        self._enough.set()
        self.join()


def quarters(samples: Sequence[Sample], field: str) -> list[float]:
    """The median of each quarter of the time, by what was measured; those of a quarter without any are left out."""
    end = samples[-1].at
    parts: list[list[float]] = [[], [], [], []]
    for sample in samples:
        parts[min(3, int(4 * sample.at / end)) if end else 0].append(getattr(sample, field))
    return [median(part) for part in parts if part]


def lived_throughout(samples: Sequence[Sample]) -> bool:
    """Whether it is one process from the first sample to the last."""
    return len({sample.pid for sample in samples}) == 1


def rise(samples: Sequence[Sample], measure: Measure) -> float:
    """How much more a process held at the end, by the straight line through the last half; memory in MB an hour.

    The first half is not looked at: models come into memory, and caches fill. Of each part of the last half only the
    lowest value counts. What a process takes during a fault, such as the models of a worker that is away, it gives back
    afterwards. What leaks is not given back, so a leak raises the lowest values as much as the others.
    """
    late = [sample for sample in samples if sample.at >= samples[-1].at / 2]
    if len(late) < PARTS:
        return 0.0
    ends = [len(late) * part // PARTS for part in range(PARTS + 1)]
    parts = [late[begin:end] for begin, end in itertools.pairwise(ends)]
    lows = [min(part, key=lambda each: getattr(each, measure.field)) for part in parts]
    slope = linear_regression([low.at for low in lows], [getattr(low, measure.field) for low in lows]).slope
    return slope * (3600 if measure.hourly else late[-1].at - late[0].at)


def growth(samples: Sequence[Sample], measure: Measure) -> str:
    """A sentence if a process holds more and more of something, otherwise empty."""
    if (more := rise(samples, measure)) <= measure.most:
        return ""
    span = "an hour" if measure.hourly else "in the last half"
    return f"{measure.title}: {more:+.0f} {span}, at most {measure.most:+.0f} is flat"


def scattered(samples: Sequence[Sample]) -> str:
    """A sentence if a process keeps much memory that it does not use, otherwise empty."""
    free = quarters(samples, "memory_mb")[-1] - quarters(samples, "used_mb")[-1]
    if free <= MOST_FREE_MB:
        return ""
    return f"memory freed and not given back: {free:.0f} MB in the last quarter, at most {MOST_FREE_MB:.0f} is flat"
