"""How evenly the machine runs while something is measured: the same small piece of work again and again.

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

# About 0.1 ms of work, every 10 ms. It needs no memory but a cache, so that neighbours in memory do not slow it.
WORK, EVERY_S = bytes(20_000), 0.01
# The machine is slow if the work takes so many times its usual time of the processor.
SLOW = 2.0
# Moments that are so close together are one.
CLOSE_S = 0.04


class Pace:
    """The machine's slow moments, once the measurement is over.

    Attributes
    ----------
    slow : (n, 2)
        When each began and ended, in seconds since the epoch.
    share
        Their share of the time.
    """

    def __init__(self) -> None:
        self.slow: NDArray[np.float64] = np.zeros((0, 2))
        self.share = 0.0

    def note(self, times: NDArray[np.float64], took: NDArray[np.float64]) -> None:
        """Find the slow moments, from when each piece of work ended and how long it took the processor."""
        slow = took > SLOW * np.median(took)
        self.share = float(slow.mean())
        moments: list[list[float]] = []
        for end in times[slow].tolist():
            if moments and end - moments[-1][1] <= CLOSE_S:
                moments[-1][1] = end
            else:
                moments.append([end - EVERY_S, end])
        self.slow = np.array(moments).reshape(-1, 2)

    def even(self, begins: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of these stretches of time (n,) met no slow moment."""
        met = (begins[:, None] <= self.slow[:, 1]) & (ends[:, None] >= self.slow[:, 0])
        return ~met.any(axis=1)


@contextmanager
def watched() -> Iterator[Pace]:
    """Watch the machine in a process of its own while the block runs."""
    pace = Pace()
    child = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    child.stdout.readline()
    try:
        yield pace
    finally:
        answer, _ = child.communicate()
    times, took = np.array([line.split() for line in answer.splitlines()], np.float64).T
    pace.note(times, took)


def work() -> None:
    """Say that it begins, work until standard input ends, then print when each piece ended, and how long it took."""
    done = []
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], EVERY_S)[0]:
        begin = time.thread_time()
        hashlib.sha256(WORK).digest()
        done.append((time.time(), time.thread_time() - begin))
    for end, took in done:
        print(f"{end:.6f} {took:.9f}")


if __name__ == "__main__":
    work()
