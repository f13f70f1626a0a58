"""Whether a model's mistakes become more frequent: what is similar may come to mean something else.

ADWIN (Bifet and Gavalda, 2007) over the comparisons as they come, right or wrong before they are learned. Learning
goes on as it is: to shorten Hedge's memory for a while after an alarm was tried, and slows recovery (DECISIONS).
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from river.drift import ADWIN


class Drift:
    """Sees every comparison of one model.

    Parameters
    ----------
    state
        What :meth:`to_bytes` gave; empty: nothing seen yet. It must be whole: keep it under a checksum.
    """

    def __init__(self, state: bytes = b"") -> None:
        self._adwin: Any = ADWIN()  # type: ignore[no-untyped-call]
        if state:
            self._adwin._helper.__setstate__(state)  # private, but pickle is the only other way

    def to_bytes(self) -> bytes:
        """The state, about 2 kB."""
        return bytes(self._adwin._helper.__getstate__())

    def add(self, scores: NDArray[Any]) -> str:
        """Take in f of comparisons, f > 0 being a mistake; says what changed where mistakes became more frequent."""
        adwin, before, told = self._adwin, self._adwin.estimation, ""
        for wrong in (scores > 0).tolist():
            adwin.update(wrong)
            if adwin.drift_detected and adwin.estimation > before:
                told = f"mistakes went from {before:.1%} to {adwin.estimation:.1%} of comparisons"
        return told
