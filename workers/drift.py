"""Whether a model's mistakes become more frequent: what is similar may come to mean something else.

ADWIN (Bifet and Gavalda, 2007) over the comparisons as they come, right or wrong before they are learned. Learning
goes on as it is: to shorten Hedge's memory for a while after an alarm was tried, and does not pay (DECISIONS).
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from river._river_rust.drift import AdaptiveWindowing  # private, but river.drift imports scikit-learn: two seconds

from omdml.errors import CorruptError

DELTA = 0.002  # these and the others are river's own defaults
LEAST_RISE = 0.0
LOOKS = {"clock": 32, "max_buckets": 5, "min_window_length": 5, "grace_period": 10}


class Drift:
    """Sees every comparison of one model.

    Parameters
    ----------
    state
        What :meth:`to_bytes` gave; empty: nothing seen yet. It must be whole: keep it under a checksum.

    Raises CorruptError for other bytes, as far as river can tell.
    """

    def __init__(self, state: bytes = b"") -> None:
        self._window = AdaptiveWindowing(delta=DELTA, **LOOKS)
        self._detected = False  # the window then begins anew with the next comparison
        if state:
            try:
                self._window.__setstate__(state)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # what Rust raises in a panic is no Exception
                raise CorruptError(f"drift state: {len(state)} bytes that are none ({error})") from error

    def to_bytes(self) -> bytes:
        """The state, about 2 kB; none where the window begins anew with the next comparison."""
        return b"" if self._detected else bytes(self._window.__getstate__())

    def add(self, scores: NDArray[Any]) -> str:
        """Take in f of comparisons, f > 0 being a mistake; says from what to what mistakes rose, if that matters."""
        count, mistakes = self._window.get_width(), self._window.get_total()
        told = ""
        for wrong in (scores > 0).tolist():
            if self._detected:
                self._window = AdaptiveWindowing(delta=DELTA, **LOOKS)
                count, mistakes = 0, 0.0
            count, mistakes = count + 1, mistakes + wrong
            self._detected = self._window.update(wrong)
            if self._detected:
                # what the window dropped is how it was, what it holds is how it is now
                dropped = count - self._window.get_width()
                before = (mistakes - self._window.get_total()) / dropped if dropped else 0.0
                if self._rate - before >= LEAST_RISE:
                    told = f"mistakes went from {before:.1%} to {self._rate:.1%} of comparisons"
        return told

    @property
    def _rate(self) -> float:
        width = self._window.get_width()
        return float(self._window.get_total() / width) if width else 0.0
