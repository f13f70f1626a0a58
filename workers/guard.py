"""What must hold before a version goes live: it is sound, near what was allowed, and no worse on events held out.

Decisions are made at certain versions, which the model's size says, and lie in its checkpoint: whether a version may go
live is a function of the log and the store's secret, whatever the time, the batches or the restarts. Measured with
hostile feedback of many kinds (``python -m benchmarks guard``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import NormalDist
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.metrics import Metric
from omdml.snapshot import metric_to_bytes
from workers.config import GuardConfig
from workers.hold_out import HoldOut
from workers.window import in_pairs, told

Array = NDArray[Any]
FEWEST = 32  # held-out events before they say anything
RENEWAL = 64  # events held out between two references
RELEASE = 0.75  # of the doubt counts against a candidate once one was withheld: it must be good, not just perhaps
GRID = 512  # comparisons between two decisions about a small model
SMALL = 40_000  # numbers in its metric
STEPS = 4  # times that much at most: large models take longer to judge, and to learn


def grid(metric: Metric) -> int:
    """Comparisons between two decisions: judging takes about a tenth of the time that learning them takes."""
    numbers = sum(tensor.size for tensor in metric.to_tensors()[0].values())
    return GRID * min(STEPS, max(1, numbers // SMALL))


def next_decision(version: int, step: int) -> int:
    """The first version after this one to be decided on: powers of two up to a step, then every step."""
    return min(1 << version.bit_length(), step) if version < step else (version // step + 1) * step


class Yardstick(msgspec.Struct):
    """What a model's candidates are compared with, and what the last decision was; its checkpoint keeps this.

    Parameters
    ----------
    version
        Of the reference.
    renewed
        Events held out when it was taken.
    lost
        Margins, by renewals since the best reference.
    decided
        The version that was decided on last.
    withheld
        Why it must not go live; empty if it may.
    sizes, weights
        Of the last version that was allowed: what is compared with it leaps if these differ much.
    """

    version: int = 0
    renewed: int = 0
    lost: float = 0.0
    decided: int = 0
    withheld: str = ""
    sizes: dict[str, float] = {}
    weights: list[float] = []


class Guard:
    """Decides about the versions of one model, one after another.

    Candidates are compared with a reference, an earlier version that was allowed, which is renewed now and then by one
    that is about as good. What all renewals lose together stays within ``tolerance``, so that many small steps down
    never become the measure of the next.

    Parameters
    ----------
    reference
        What to compare with: a new model's start.
    yardstick
        What goes with it, if it was kept; changed here.
    """

    def __init__(self, config: GuardConfig, reference: Metric, yardstick: Yardstick | None = None) -> None:
        self.config = config
        self.reference = reference
        self.reference_bytes = metric_to_bytes(reference)
        self.yardstick = yardstick or Yardstick()
        if yardstick is None:
            self._allow(reference)
        self.step = grid(reference)
        self._deviations = NormalDist().inv_cdf(config.confidence)

    def next_decision(self, version: int) -> int:
        """The first version after this one to be decided on."""
        return next_decision(version, self.step)

    def decide(self, candidate: Metric, version: int, hold_out: HoldOut, features: Mapping[str, Array]) -> None:
        """Decide whether this version, and what comes until the next decision, may go live.

        Parameters
        ----------
        features
            The catalogue's, which the events held out point into.
        """
        wrong = not_finite(candidate) or self._weigh(candidate, version, hold_out, features)
        self.yardstick.decided, self.yardstick.withheld = version, wrong
        if not wrong:
            self._allow(candidate)

    def withheld(self, candidate: Metric) -> str:
        """Why a candidate must not go live; empty if it may.

        It may if it is sound, the last decision allowed its version, and it is no leap from that one.
        """
        if wrong := not_finite(candidate):
            return wrong
        return (self.yardstick.withheld or self._leap(candidate)) if self.config.on else ""

    def _allow(self, candidate: Metric) -> None:
        self.yardstick.sizes, self.yardstick.weights = dict(sizes(candidate)), weights(candidate)

    def _weigh(self, candidate: Metric, version: int, hold_out: HoldOut, features: Mapping[str, Array]) -> str:
        """Compare on the events held out; if they say nothing, or nothing good, a leap is not let through.

        A candidate is withheld if it is surely worse, and then let go if it surely is not.
        """
        margins = told(candidate, hold_out.kept, features)
        gain = margins - self._expected(hold_out, features)
        if len(gain) < FEWEST:
            return self._leap(candidate)
        mean, doubt = float(gain.mean()), self._deviations * float(gain.std(ddof=1)) / math.sqrt(len(gain))
        against = -RELEASE * doubt if self.yardstick.withheld else doubt
        # Not ``<``: the mean may be NaN.
        if not mean + against >= -self.config.tolerance:
            return f"not as good on {len(gain)} events held out: margins {mean:+.3f}, give or take {doubt:.3f}"
        if mean <= self.config.tolerance / 2 and (leap := self._leap(candidate)):
            return leap
        surely_better = mean - doubt > 0
        if hold_out.count >= self.yardstick.renewed + RENEWAL or surely_better:
            self._renew(candidate, version, mean, hold_out, margins)
        return ""

    def _renew(self, candidate: Metric, version: int, mean: float, hold_out: HoldOut, margins: Array) -> None:
        """Compare with this one from now on, if it is about as good as the reference."""
        lost = self.yardstick.lost + mean
        if mean < -self.config.tolerance / 2 or lost < -self.config.tolerance:
            return
        self.reference, self.reference_bytes = candidate, metric_to_bytes(candidate)
        self.yardstick.version, self.yardstick.renewed = version, hold_out.count
        self.yardstick.lost = min(0.0, lost)
        if not in_pairs(hold_out.kept):
            for event, margin in zip(hold_out.kept, margins.tolist(), strict=True):
                event.expected = margin

    def _expected(self, hold_out: HoldOut, features: Mapping[str, Array]) -> Array:
        """Margins of the reference.

        They are computed for events that came since the last decision, together, and kept with them. How many events
        share a call changes their last bits, so computing all of them again after a restart would not do.
        """
        if in_pairs(hold_out.kept):
            return told(self.reference, hold_out.kept, features)
        new = [event for event in hold_out.kept if event.expected is None]
        for event, margin in zip(new, told(self.reference, new, features).tolist(), strict=True):
            event.expected = margin
        return np.array([event.expected for event in hold_out.kept], np.float64)

    def _leap(self, candidate: Metric) -> str:
        """What changed too much since the last version that was allowed; empty if nothing did."""
        before = self.yardstick.sizes
        for name, size in sizes(candidate):
            usual = before.get(name, 0.0)
            if usual and not usual / self.config.growth <= size <= usual * self.config.growth:
                return f"{name} went from {usual:.3g} to {size:.3g} at once"
        moved = weight_moved(self.yardstick.weights, weights(candidate))
        return f"{moved:.0%} of the weight moved between modalities at once" if moved > self.config.moved else ""


def not_finite(metric: Metric) -> str:
    """Which tensor holds values that are not finite; empty if none does."""
    for name, tensor in metric.to_tensors()[0].items():
        if not np.isfinite(tensor).all():
            return f"{name} holds values that are not finite"
    return ""


def sizes(metric: Metric) -> Iterator[tuple[str, float]]:
    """Norm of every tensor, and of a matrix W how many directions it stretches: ``(tr G / |G|_F)^2``, G = W W'."""
    for name, tensor in metric.to_tensors()[0].items():
        if name != "weights" and tensor.ndim:
            yield f"the norm of {name}", float(np.linalg.norm(tensor))
        if tensor.ndim == 2:
            gram = tensor @ tensor.T if len(tensor) <= tensor.shape[1] else tensor.T @ tensor
            yield f"the spread of {name} over directions", float(np.trace(gram) / (np.linalg.norm(gram) or 1.0)) ** 2


def weights(metric: Metric) -> list[float]:
    """The weight of each modality; empty if the metric has none."""
    found = metric.to_tensors()[0].get("weights")
    return [] if found is None else np.asarray(found, np.float64).tolist()


def weight_moved(before: list[float], after: list[float]) -> float:
    """Share of the weight that went from some modalities to others."""
    return float(np.abs(np.subtract(after, before)).sum() / 2) if before and after else 0.0
