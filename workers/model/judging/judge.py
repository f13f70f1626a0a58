"""The judge of one model: it holds events out, and says by them which versions may go live."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import structlog

from omdml.feedback import ONLY_TASK
from omdml.learners import Learner
from omdml.metrics import Metric
from omdml.streams.protocols.catalogue import Catalogue
from omdml.workers.events.lookup import Located
from omdml.workers.model.judging.guard import Guard
from omdml.workers.model.judging.held_out_draw import Draw, HeldOutOfBatch, HoldOutState, Split, split
from omdml.workers.model.judging.held_out_window import Window
from omdml.workers.model.judging.start_comparison import StartComparison

log = structlog.get_logger(__name__)


class Judge:
    """Has a guard compare a model's versions on the events that the draw holds out.

    Attributes
    ----------
    first_metric
        Makes the metric that the model began with, to compare with; None: nothing is compared.
    withheld
        Why the guard withholds the newest version; empty if it does not.
    """

    def __init__(
        self, model: str, learner: Learner, catalogue: Catalogue, draw: Draw, guard: Guard, hold_out: HoldOutState
    ) -> None:
        self.draw = draw
        self.first_metric: Callable[[], Metric] | None = None
        self.start_comparison = StartComparison()
        self._model = model
        self._catalogue = catalogue
        self._tasks = getattr(learner, "tasks", None) or [ONLY_TASK]
        self._sets = not learner.width
        self.compare_by(guard)
        self.judge_by(hold_out)

    def compare_by(self, guard: Guard) -> None:
        """Have this guard decide from now on."""
        self.guard, self.withheld = guard, guard.yardstick.withheld

    def judge_by(self, hold_out: HoldOutState) -> None:
        """Judge by these held-out events from now on."""
        self.hold_out = hold_out
        self.window = Window(hold_out.kept, self._catalogue.first, len(self._tasks), sets=self._sets)

    def split(self, located: Located) -> Split:
        """Split the events into those to learn and those held out."""
        if not self.hold_out.every:
            return Split(located, [], frozenset())
        return split(located, self.draw, self.hold_out.every, self._catalogue, self._tasks)

    def keep(self, held_out: deque[HeldOutOfBatch], before: float = math.inf) -> None:
        """Count held-out events that come before this event of the batch, and add them to the window."""
        while held_out and held_out[0].before < before:
            self.hold_out.count += 1
            if event := held_out.popleft().event:
                self.window.add(event)

    def decide(self, candidate: Metric, version: int) -> None:
        """Let the guard decide about this version."""
        features = self._catalogue.features
        self.guard.decide(candidate, version, self.window, self.hold_out.count, features)
        if self.first_metric is not None:
            self.start_comparison.compare(self.guard.margins, self.first_metric, self.window, features)

    def has_time(self, version: int) -> bool:
        """Whether :meth:`verdict` can be asked now: it needs no look between two decisions, or there is time for it."""
        return self.guard.has_time or self.guard.is_near(version) or bool(self.guard.yardstick.withheld)

    def verdict(self, candidate: Metric, version: int) -> str:
        """Why a metric of this model must not go live; empty if it may. Changes are logged."""
        before = self.withheld
        self.withheld = self.guard.why_withheld(candidate)
        if not self.withheld and not self.guard.is_near(version):
            self.withheld = self.guard.check_between(candidate, version, self.window, self._catalogue.features)
        if self.withheld and not before:
            log.warning(
                "snapshot_withheld",
                model=self._model,
                version=version,
                reason=self.withheld,
                action="an earlier version stays live",
            )
        elif before and not self.withheld:
            log.info("snapshots_live_again", model=self._model, version=version)
        return self.withheld
