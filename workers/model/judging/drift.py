"""Notices when a model's mistakes become more frequent, because what is similar has come to mean something else.

ADWIN (Bifet and Gavalda, 2007) is told of each comparison whether it was ordered correctly before it was learned. An
alarm does not change how the model learns: shortening Hedge's memory for a while was tried, and does not pay
(DECISIONS).

In a long stream ADWIN notices even a rise of 0.2 points, which does not matter. So its window goes on after a cut. An
alarm is raised only if the mistake rate within the window exceeds that of the dropped part by ``LEAST_RISE``; then a
new window begins. A rate that rises by less at a time raises no alarm: ``omdml inspect`` and the metrics show it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

# It is private, but river.drift imports scikit-learn, which takes two seconds.
from river._river_rust.drift import AdaptiveWindowing

from omdml.errors import CorruptError

# Smaller rises of the mistake rate raise no alarm.
#
# Measured with more wrong judgements from 20,000 comparisons on: two points more (5 % -> 7 %) lower the mAP of mfeat by
# 0.02 at most, ten points more by 0.01 to 0.03 and that of yaleb by 0.1 and more. Of 40 streams with a rise of two
# points none raises an alarm, of five points 35 do, of ten points all, 200 to 1,200 comparisons after the rise.
LEAST_RISE = 0.03
# These numbers are river's own defaults.
DELTA = 0.002
WINDOW_OPTIONS = {"clock": 32, "max_buckets": 5, "min_window_length": 5, "grace_period": 10}


class Rise(NamedTuple):
    """An alarm: a sentence about it, and how many comparisons of the same call came after the one that raised it."""

    message: str
    later: int


class Drift:
    """Sees every comparison of one model.

    Parameters
    ----------
    state
        What :meth:`to_bytes` gave; empty: nothing seen yet. It must be whole: keep it under a checksum.

    Raises CorruptError for other bytes, as far as river can tell.
    """

    def __init__(self, state: bytes = b"") -> None:
        self._window = AdaptiveWindowing(delta=DELTA, **WINDOW_OPTIONS)
        if state:
            try:
                self._window.__setstate__(state)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                # What Rust raises in a panic is no Exception.
                raise CorruptError(f"drift state: {len(state)} bytes that cannot be read ({error})") from error

    def to_bytes(self) -> bytes:
        """The state, about 2 kB; none if nothing was seen since the window began."""
        return bytes(self._window.__getstate__()) if self._window.get_width() else b""

    def add(self, scores: NDArray[Any]) -> Rise | None:
        """Take in f (n,) of comparisons; f > 0 is a mistake. Returns the last alarm among them."""
        count, mistakes, rise = self._window.get_width(), self._window.get_total(), None
        for number, wrong in enumerate((scores > 0).tolist(), start=1):
            count, mistakes = count + 1, mistakes + wrong
            if not self._window.update(wrong):
                continue
            # The window dropped what came before the rise, and holds what came after it.
            dropped = count - self._window.get_width()
            before = (mistakes - self._window.get_total()) / dropped if dropped else 1.0
            count, mistakes = self._window.get_width(), self._window.get_total()
            if count and mistakes / count - before >= LEAST_RISE:
                message = f"mistakes went from {before:.1%} to {mistakes / count:.1%} of comparisons"
                rise = Rise(message, len(scores) - number)
                self._window, count, mistakes = AdaptiveWindowing(delta=DELTA, **WINDOW_OPTIONS), 0, 0.0
        return rise
