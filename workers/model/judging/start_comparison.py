"""Compares a model with its beginning: how many held-out events each orders rightly.

The console and commands show by this what learning gained.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from omdml.metrics import Metric
from omdml.workers.model.judging.guard import FEWEST
from omdml.workers.model.judging.held_out_accuracy import share_right
from omdml.workers.model.judging.held_out_window import Window, margins_on

Array = NDArray[Any]
# Seconds between two comparisons with the start. One takes about as long as a decision of the guard.
COMPARE_EVERY_S = 1.0


class StartComparison:
    """Compares a model with its start, now and then.

    Attributes
    ----------
    figures
        The shares of the last comparison, for snapshots; empty before the first one.
    """

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self._due_at = -math.inf

    def compare(
        self, margins: Array, first_metric: Callable[[], Metric], window: Window, features: Mapping[str, Array]
    ) -> None:
        """If it is time, compare the margins of the held-out events with those under the metric at the start."""
        if len(margins) < FEWEST or time.monotonic() < self._due_at:
            return
        at_start = margins_on(first_metric(), window.events, features)
        self.figures = {"held_out_right": share_right(margins), "held_out_right_at_start": share_right(at_start)}
        self._due_at = time.monotonic() + COMPARE_EVERY_S
