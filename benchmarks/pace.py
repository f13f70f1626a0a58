"""Measures how evenly the machine runs: a process repeats a small piece of work and times it.

Virtual machines can lose most of their speed for a tenth of a second, on all cores, and count none of it as stolen.
Whatever is measured in such a moment says little about omdml.
"""

from __future__ import annotations

import hashlib
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

# What is hashed again and again. It fits into the processor's cache, so other programs' use of memory does not slow it.
DATA = bytes(20_000)
READY = "ready\n"
# Seconds between two pieces of work.
EVERY_S = 0.01
# The machine is slow when the work takes more than so many times its median processor time.
SLOW = 2.0


class Pace:
    """The machine's slow moments. They are known once the measurement is over.

    Attributes
    ----------
    slow_moments : (n, 2)
        When each began and ended, in seconds since the epoch.
    slow_share
        Share of the time in which the machine was slow.
    """

    def __init__(self) -> None:
        self.slow_moments: NDArray[np.float64] = np.zeros((0, 2))
        self.slow_share = 0.0
        self._begin = self._end = 0.0

    def find_slow_moments(self, ends: NDArray[np.float64], cpu_s: NDArray[np.float64]) -> None:
        """Find them from when each piece of work ended, and from its processor time."""
        is_slow = cpu_s > SLOW * np.median(cpu_s)
        # A piece may have become slow as soon as the one before it ended.
        begins = np.concatenate([ends[:1] - cpu_s[:1], ends[:-1]])
        self._begin, self._end = float(begins[0]), float(ends[-1])
        self.slow_share = float((ends - begins)[is_slow].sum()) / (self._end - self._begin)
        self.slow_moments = np.stack([begins[is_slow], ends[is_slow]], axis=1)

    def is_even(self, begins: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether each stretch of time (n,) was watched and met no slow moment."""
        begin, end = self.slow_moments.T
        overlaps = (begins[:, None] <= end) & (ends[:, None] >= begin)
        return (begins >= self._begin) & (ends <= self._end) & ~overlaps.any(axis=1)


@contextmanager
def watched() -> Iterator[Pace]:
    """Watch the machine in a process of its own while the block runs."""
    pace = Pace()
    child = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    if child.stdout.readline() != READY:
        raise RuntimeError(f"python {__file__} did not begin: see what it printed")
    try:
        yield pace
    finally:
        printed, _ = child.communicate()
    ends, cpu_s = np.array([line.split() for line in printed.splitlines()], np.float64).T
    pace.find_slow_moments(ends, cpu_s)


def repeat_work() -> None:
    """Print ``ready``, work until standard input is closed, then print when each piece ended and its processor time."""
    pieces = []
    print(READY, end="", flush=True)
    while not select.select([sys.stdin], [], [], EVERY_S)[0]:
        begin = time.thread_time()
        hashlib.sha256(DATA).digest()
        pieces.append((time.time(), time.thread_time() - begin))
    for end, cpu_s in pieces:
        print(f"{end:.6f} {cpu_s:.9f}")


if __name__ == "__main__":
    repeat_work()
