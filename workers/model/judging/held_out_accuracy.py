"""How many held-out events a metric orders rightly. The console and commands show by this what learning gained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

from omdml.learners import LEARNERS
from omdml.metrics import Metric, SetMetric
from omdml.streams.protocols.catalogue import Catalogue
from omdml.workers.model.judging.held_out_draw import HoldOutState
from omdml.workers.model.judging.held_out_window import margins_on


class HeldOutAccuracy(NamedTuple):
    """The share of held-out events that a metric orders rightly, and how many events there are."""

    right: float
    events: int

    def __str__(self) -> str:
        return f"{self.right:.1%}"


def share_right(margins: NDArray[Any]) -> float:
    """The share of events with a positive margin: those that a metric orders rightly."""
    return float((margins > 0).mean())


def order_right(hold_out: HoldOutState, metric: Metric, features: Mapping[str, NDArray[Any]]) -> HeldOutAccuracy | None:
    """Ask a metric about what is held out; None if nothing is.

    An event of several comparisons counts once, by the mean of their margins.
    """
    margins = margins_on(metric, hold_out.kept, features)
    return HeldOutAccuracy(share_right(margins), len(margins)) if len(margins) else None


def plain_metric(start: Metric, catalogue: Catalogue) -> Metric:
    """The plain distance: Euclidean over the coordinates that the model learns on, mapped ones or features.

    Modalities are scaled such that each adds as much as any other to the mean squared distance of random items.
    Sets of items have no such distance, so for a metric of sets it is the one that its learner starts with.
    """
    if isinstance(start, SetMetric):
        return start
    learner = LEARNERS["diagonal"](dims=dict(catalogue.dims))
    learner.start({name: rows[: catalogue.first] for name, rows in catalogue.features.items()})
    return learner.metric
