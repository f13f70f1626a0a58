"""What must hold before a snapshot goes live: it is sound, near what is live, and no worse on events held back.

Measured with 30 % of the clicks inverted (``python -m benchmarks guard``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from statistics import NormalDist
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.metrics import Metric
from workers.config import GuardConfig
from workers.hold_out import HoldOut

Array = NDArray[Any]
FEWEST = 32  # events held back before they say anything
RENEWAL = 64  # events held back between two references
RELEASE = 0.75  # of the doubt counts against a candidate once one was held back: it must be good, not just perhaps
SHARE = 0.1  # of the time that judging may take: between two looks only what is near goes live
NEAR = 64  # comparisons after a metric that was judged: too few to make it surely worse, whatever they say


class Yardstick(msgspec.Struct):
    """What a model's candidates are compared with, as its checkpoint keeps it.

    Parameters
    ----------
    version
        Of the reference.
    renewed
        Events held back when it was taken.
    lost
        Margins, by renewals since the best reference.
    """

    version: int = -1
    renewed: int = 0
    lost: float = 0.0


class Guard:
    """Judges the candidates of one model, one after another.

    They are compared with a reference, a metric that went live, which is renewed now and then by one that is about as
    good. What all renewals lose together stays within ``tolerance``, so that many small steps down never become the
    measure of the next.

    Parameters
    ----------
    live
        The metric that is live, None where nothing is.
    held
        Why the last candidate was held back, if it was.
    yardstick
        Kept up to date here, but for its version.
    reference
        The metric of that version; what is live where it cannot be had any more.
    """

    def __init__(
        self,
        config: GuardConfig,
        live: Metric | None = None,
        held: str = "",
        yardstick: Yardstick | None = None,
        reference: Metric | None = None,
    ) -> None:
        self.config = config
        self.held = held
        self.reference = reference or live
        self._live = live
        self.yardstick = yardstick or Yardstick()
        self._margins, self._margins_of = np.empty(0), -1  # of the reference, and events held back by then
        self._deviations = NormalDist().inv_cdf(config.confidence)
        self._next_look = -math.inf  # by a monotonic clock

    @property
    def looks(self) -> bool:
        """Whether there is time to judge by now."""
        return time.monotonic() >= self._next_look

    def judge(self, candidate: Metric, hold_out: HoldOut, features: Mapping[str, Array]) -> str:
        """Why a candidate must not go live; empty where it may.

        Parameters
        ----------
        features
            The catalogue's, which the events held back point into.
        """
        began = time.monotonic()
        wrong = not_finite(candidate)
        if not wrong and self.config.on:
            wrong = self._weigh(candidate, hold_out, features)
        self.held = wrong
        if not self.held:
            self._live = candidate
        self._next_look = began + (time.monotonic() - began) / SHARE
        return self.held

    def follows(self, candidate: Metric) -> bool:
        """Whether what is ``NEAR`` one that was judged may go live without a look at events: sound, and no leap."""
        return not not_finite(candidate) and not (self.config.on and self._leap(candidate))

    def _weigh(self, candidate: Metric, hold_out: HoldOut, features: Mapping[str, Array]) -> str:
        """Compare on the events held back; where they say nothing, or nothing good, a leap is not let through.

        A candidate is held back when it is surely worse, and let go when it surely is not.
        """
        gain = hold_out.margins(candidate, features) - self._expected(candidate, hold_out, features)
        if len(gain) < FEWEST:
            return self._leap(candidate)
        mean, doubt = float(gain.mean()), self._deviations * float(gain.std(ddof=1)) / math.sqrt(len(gain))
        if not mean + (-RELEASE * doubt if self.held else doubt) >= -self.config.tolerance:  # nor may it be NaN
            return f"not as good on {len(gain)} events held back: margins {mean:+.3f}, give or take {doubt:.3f}"
        if mean <= self.config.tolerance / 2 and (leap := self._leap(candidate)):
            return leap
        if hold_out.count >= self.yardstick.renewed + RENEWAL:
            self._renew(candidate, mean, hold_out.count)
        return ""

    def _renew(self, candidate: Metric, mean: float, count: int) -> None:
        """Compare with this one from now on, if it is about as good as the reference."""
        lost = self.yardstick.lost + mean
        if mean >= -self.config.tolerance / 2 and lost >= -self.config.tolerance:
            self.reference, self._margins_of = candidate, -1
            self.yardstick.renewed, self.yardstick.lost = count, min(0.0, lost)

    def _expected(self, candidate: Metric, hold_out: HoldOut, features: Mapping[str, Array]) -> Array:
        """Margins of the reference."""
        if self.reference is None:
            self.reference = candidate
        if self._margins_of != hold_out.count:
            self._margins, self._margins_of = hold_out.margins(self.reference, features), hold_out.count
        return self._margins

    def _leap(self, candidate: Metric) -> str:
        """What changed too much since the live one; empty where nothing did."""
        if self._live is None:
            return ""
        before = dict(sizes(self._live))
        for name, size in sizes(candidate):
            if before[name] and not before[name] / self.config.growth <= size <= before[name] * self.config.growth:
                return f"{name} went from {before[name]:.3g} to {size:.3g} at once"
        moved = weight_moved(self._live, candidate)
        return f"{moved:.0%} of the weight moved between modalities at once" if moved > self.config.moved else ""


def not_finite(metric: Metric) -> str:
    """Which tensor holds values that are not finite; empty where none does."""
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


def weight_moved(before: Metric, after: Metric) -> float:
    """Share of the weight that went from some modalities to others."""
    old, new = before.to_tensors()[0].get("weights"), after.to_tensors()[0].get("weights")
    return 0.0 if old is None or new is None else float(np.abs(new - old).sum() / 2)
