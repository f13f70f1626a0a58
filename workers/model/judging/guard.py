"""Decides whether a version may go live: it must be finite, near what was allowed, and no worse on held-out events.

Decisions are made at certain versions, which follow from the model's size, and are stored in its checkpoint. So a
decision is a function of the log and the store's secret. It does not depend on time, batches or restarts. What goes
live between two decisions stays live only if the next decision does not find it worse; otherwise the reference goes
live again. If there is time, the guard looks at versions between two decisions, too. Such a look depends on the clock,
so it may only withhold a version, and only until the next decision. Measured with hostile feedback of many kinds
(``python -m benchmarks guard``).
"""

from __future__ import annotations

import copy
import math
import time
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.metrics import CosineMetric, Metric
from omdml.snapshot import metric_to_bytes
from omdml.workers.configuration.config import GuardConfig
from omdml.workers.model.judging.held_out_window import JudgingEvent, Window, in_pairs, judging, margins_on
from omdml.workers.model.judging.leaps import Shape, leap, not_finite, shape_of
from omdml.workers.model.judging.reason_codes import WORDS, code_of

Array = NDArray[Any]
# Nothing is concluded from fewer held-out events than FEWEST, or from fewer different queries than VOTES.
FEWEST, VOTES = 32, 8
# The newest events of this many queries overrule the others if they surely agree, because people change their minds.
NEWEST = 40
# At least so many events are held out between two references, unless a version is much better.
RENEWAL = 64
# Share of the time that looks between two decisions may take.
SHARE = 0.1
# What looks left of their share in so many seconds, they may take later. So a single look of up to 0.1 s delays no
# version.
SAVED_UP_S = 1.0
# A version this many comparisons after one that was looked at cannot be surely worse, whatever these comparisons say.
NEAR = 64
# Comparisons between two decisions about a small model.
GRID = 1024
# The most numbers in the metric of a small model.
SMALL = 34_000
# A large model is judged every GRID comparisons times a factor of at most this: judging and learning take longer.
STEPS = 4
# A further factor if each decision must compute a metric from sums, which takes about 35 ms at 512 coordinates.
COMPUTED = 2


def grid(metric: Metric) -> int:
    """Comparisons between two decisions. Judging takes a fifth to a half of the time that learning them takes."""
    if isinstance(metric, CosineMetric):
        # The number of rows of such a metric changes as it learns, so the grid must not depend on it: a guard that
        # resumes after a restart sees a later metric than the guard before it began with.
        return GRID * min(STEPS * COMPUTED, max(1, COMPUTED * sum(metric.dims.values()) ** 2 // SMALL))
    numbers = sum(tensor.size for tensor in metric.to_tensors()[0].values())
    return GRID * min(STEPS, max(1, numbers // SMALL))


def next_decision(version: int, step: int) -> int:
    """The first version after this one to be decided on: powers of two up to a step, then every step."""
    return min(1 << version.bit_length(), step) if version < step else (version // step + 1) * step


class Yardstick(msgspec.Struct):
    """What candidates of a model are compared with, and what the last decision was. The checkpoint stores it.

    Parameters
    ----------
    version
        The reference's version.
    renewed
        Number of events that had been held out when it became the reference.
    lost
        Sum of the mean gains of all renewals since the best reference, at most 0.
    decided
        The version that the last decision was about.
    withheld
        Why that version must not go live; empty if it may.
    sizes, weights
        Norms, spreads and weights of the last version that was allowed. A candidate leaps if its own differ much.
    """

    version: int = 0
    renewed: int = 0
    lost: float = 0.0
    decided: int = 0
    withheld: str = ""
    sizes: dict[str, float] = {}
    weights: list[float] = []


class VersionComparison(NamedTuple):
    """How a version did beside an earlier one, the reference, on the held-out events.

    ``margin`` is the mean gain in margins, below 0 if the version is worse, and ``doubt`` its margin of error at the
    configured confidence. ``queries`` of the held-out events had a vote each.
    """

    version: int
    reference: int
    margin: float
    doubt: float
    queries: int


class Seen(NamedTuple):
    """A metric that was asked about, why it is not finite (empty if it is), and its shape."""

    metric: weakref.ref[Metric]
    not_finite: str
    shape: Shape


class Guard:
    """Decides which versions of one model may go live, one after another.

    ``take_back`` is True if what went live since the last allowed version was judged worse, so that the reference must
    go live again. Whoever publishes the reference sets it to False.

    Candidates are compared with a reference: an earlier version that was allowed. Now and then a candidate that is
    about as good becomes the new reference. All renewals together may lose at most ``tolerance``, because otherwise a
    slow decline in many small steps would pass.

    Parameters
    ----------
    reference
        The metric to compare with; of a new model, its start.
    yardstick
        What a checkpoint stored with the reference; None for a new model. Changed in place.
    """

    def __init__(self, config: GuardConfig, reference: Metric, yardstick: Yardstick | None = None) -> None:
        self.config = config
        self.reference = reference
        self.reference_bytes = metric_to_bytes(reference)
        # What was seen last. Each metric is asked about several times before it goes live.
        self._seen: Seen | None = None
        self.take_back = False
        # Decisions by reason since they were last counted.
        self.decisions: Counter[str] = Counter()
        # At the last decision or look that had enough events.
        self.compared: VersionComparison | None = None
        # Margins of the version that was last decided on, for the events that judged it; empty if none did.
        self.margins: Array = np.empty(0)
        self.yardstick = yardstick or Yardstick()
        if yardstick is None:
            self._allow(reference)
        self.step = grid(reference)
        self._checked_version, self._withheld_until_decision = self.yardstick.decided, ""
        # Looks have taken their share of all time up to here, by the monotonic clock. If it is in the future, no look
        # may begin.
        self._used_up_to = -math.inf
        self._deviations = NormalDist().inv_cdf(config.confidence)

    @property
    def figures(self) -> dict[str, float]:
        """The last comparison, for snapshots: ``guard_version`` and so on; empty before the first one."""
        if self.compared is None or not math.isfinite(self.compared.margin):
            return {}
        return {f"guard_{name}": value for name, value in self.compared._asdict().items()}

    def another(self) -> Guard:
        """A guard for another model that starts alike: as this one was before its first decision."""
        twin = copy.copy(self)
        twin.yardstick, twin.decisions = msgspec.structs.replace(self.yardstick), Counter()
        return twin

    def next_decision(self, version: int) -> int:
        """The first version after this one to be decided on. Decisions are twice as dense while one is withheld."""
        return next_decision(version, self.step // 2 if self.yardstick.withheld else self.step)

    def decide(
        self, candidate: Metric, version: int, window: Window, held_out: int, features: Mapping[str, Array]
    ) -> None:
        """Decide whether this version, and the versions until the next decision, may go live.

        Parameters
        ----------
        window
            The held-out events that judge. Changed in place: if people changed their minds, the older ones are dropped.
        held_out
            Number of events held out so far.
        features
            The catalogue's features (n, d) of each modality, to whose rows the events point.
        """
        self.margins = np.empty(0)
        reason = self._look_at(candidate).not_finite or self._weigh(candidate, version, window, held_out, features)
        self.decisions[code_of(reason)] += 1
        self.yardstick.decided, self.yardstick.withheld = version, reason
        self._checked_version, self._withheld_until_decision = version, ""
        if not reason:
            self.take_back = False
            self._allow(candidate)

    def why_withheld(self, candidate: Metric) -> str:
        """Why a candidate must not go live, after the last decision; empty if it may.

        It may if it is finite, if the last decision allowed the version it was about, and if the candidate is no leap
        from the last allowed version.
        """
        if not self.config.on:
            return not_finite(candidate)
        return self._look_at(candidate).not_finite or self.yardstick.withheld or self._leap(candidate)

    def is_near(self, version: int) -> bool:
        """Whether a version comes so soon after one that was looked at that the events could not tell them apart."""
        return not self.config.on or (not self._withheld_until_decision and version - self._checked_version <= NEAR)

    @property
    def has_time(self) -> bool:
        """Whether there is time for a look between two decisions."""
        return time.monotonic() >= self._used_up_to

    def check_between(self, candidate: Metric, version: int, window: Window, features: Mapping[str, Array]) -> str:
        """Why a candidate that was allowed is withheld for the time being; empty if nothing speaks against it.

        Between two decisions, a burst of bad clicks may make the metric much worse. Whether there is time for a look
        depends on the clock. So a look can only withhold, only until the next decision, and is not in the checkpoint.
        """
        began = time.monotonic()
        gain = margins_on(candidate, window.events, features) - self._expected(window.events, features, keep=False)
        by_query = votes(gain, window.query_numbers(len(gain)))
        enough = len(gain) >= FEWEST and len(by_query) >= VOTES
        self._checked_version = version
        withheld = bool(self._withheld_until_decision)
        self._withheld_until_decision = self._worse(by_query, version, withheld) if enough else ""
        # Before a checkpoint there is a look even if there is no time for one. Such looks leave no debt behind.
        used_up_to = min(max(self._used_up_to, began - SAVED_UP_S), began)
        self._used_up_to = used_up_to + (time.monotonic() - began) / SHARE
        return self._withheld_until_decision

    def _allow(self, candidate: Metric) -> None:
        self.yardstick.sizes, self.yardstick.weights = self._look_at(candidate).shape

    def _look_at(self, candidate: Metric) -> Seen:
        if self._seen is None or self._seen.metric() is not candidate:
            reason = not_finite(candidate)
            self._seen = Seen(weakref.ref(candidate), reason, Shape({}, []) if reason else shape_of(candidate))
        return self._seen

    def _weigh(
        self, candidate: Metric, version: int, window: Window, held_out: int, features: Mapping[str, Array]
    ) -> str:
        """Compare candidate and reference on the held-out events. A leap goes live only if they show that it is good.

        A candidate is withheld if it is certainly worse than the reference. After that, candidates stay withheld until
        one is probably not worse.
        """
        if not window.events:
            return self._leap(candidate)
        margins = self.margins = margins_on(candidate, window.events, features)
        gain = margins - self._expected(window.events, features)
        query_numbers = window.query_numbers(len(gain))
        by_query = votes(gain, query_numbers)
        if len(gain) < FEWEST or len(by_query) < VOTES:
            return self._leap(candidate)
        # 1. Worse on all events. Either the model got worse, or people changed their minds and the older events are
        # out of date. The newest events alone decide which of the two it is.
        if worse := self._worse(by_query, version, bool(self.yardstick.withheld)):
            if not self._minds_changed(gain, query_numbers):
                # If the previous version was withheld, the reference is live again already.
                self.take_back |= not self.yardstick.withheld
                return worse
            # People changed their minds: forget the older events, and compare with this version from now on.
            first = newest(query_numbers, NEWEST)
            window.keep_newest(len(gain) - first)
            window.expect(margins[first:])
            self._renew(candidate, version, held_out, 0.0)
            return ""
        # 2. Not worse, but no clear gain either: then the metric must not have jumped.
        mean, doubt = self._mean_and_doubt(by_query)
        if mean <= self.config.tolerance / 2 and (leap := self._leap(candidate)):
            return leap
        # 3. Good enough to become the new reference? Renewals come now and then, or at once after a certain gain. The
        # losses of all renewals are added up, so that many small steps down cannot pass one after another.
        lost = self.yardstick.lost + mean
        due = held_out >= self.yardstick.renewed + RENEWAL or mean - doubt > self.config.tolerance
        if due and mean >= -self.config.tolerance / 2 and lost >= -self.config.tolerance:
            self._renew(candidate, version, held_out, min(0.0, lost))
            window.expect(margins)
        return ""

    def _worse(self, by_query: Array, version: int, withheld: bool) -> str:
        """Why a candidate with these votes is not as good as the reference; empty if it is as good.

        ``withheld`` says whether the previous candidate was withheld. Then this one gets no benefit of the doubt.
        """
        mean, doubt = self._mean_and_doubt(by_query)
        self.compared = VersionComparison(version, self.yardstick.version, mean, doubt, len(by_query))
        # The comparison is written with >= because the mean may be NaN, which must count as worse.
        if mean + (0.0 if withheld else doubt) >= -self.config.tolerance:
            return ""
        gain = f"margin {mean:+.3f}, give or take {doubt:.3f}"
        return f"{WORDS['worse']} {len(by_query)} held-out queries as version {self.yardstick.version:,}: {gain}"

    def _mean_and_doubt(self, by_query: Array) -> tuple[float, float]:
        """The mean of the votes, and its margin of error at the configured confidence."""
        return float(by_query.mean()), self._deviations * float(by_query.std(ddof=1)) / math.sqrt(len(by_query))

    def _minds_changed(self, gain: Array, query_numbers: Array) -> bool:
        """Whether the newest events alone show that the candidate is certainly better: people changed their minds.

        Each quarter of these events has to agree, so that a short burst is not enough.
        """
        first = newest(query_numbers, NEWEST)
        by_query = votes(gain[first:], query_numbers[first:])
        if len(by_query) < NEWEST:
            return False
        mean, doubt = self._mean_and_doubt(by_query)
        quarters = np.array_split(gain[first:], 4)
        return mean - doubt > self.config.tolerance and all(quarter.mean() > 0 for quarter in quarters)

    def _renew(self, candidate: Metric, version: int, held_out: int, lost: float) -> None:
        """Make this version the reference that later ones are compared with."""
        self.reference, self.reference_bytes = candidate, metric_to_bytes(candidate)
        self.yardstick.version, self.yardstick.renewed, self.yardstick.lost = version, held_out, lost

    def _expected(self, events: Sequence[JudgingEvent], features: Mapping[str, Array], keep: bool = True) -> Array:
        """Margins (n,) of the reference on the events that judge.

        They are computed once, for all events together that came since the last decision, and then kept with the
        events. The last bits of a margin depend on how many events share the call. So after a restart they must not be
        computed again, and with ``keep=False`` (a look) they are not kept.
        """
        judges = judging(events)
        if in_pairs(judges):
            return margins_on(self.reference, judges, features)
        expected = np.array([event.expected for event in judges], np.float64)
        new = [index for index, event in enumerate(judges) if event.expected is None]
        expected[new] = margins_on(self.reference, [judges[index] for index in new], features)
        if keep:
            for event, margin in zip(judges, expected.tolist(), strict=True):
                event.expected = margin
        return expected

    def _leap(self, candidate: Metric) -> str:
        """What changed too much since the last version that was allowed to go live; empty if nothing did."""
        before = Shape(self.yardstick.sizes, self.yardstick.weights)
        return leap(before, self._look_at(candidate).shape, self.config.growth, self.config.moved)


def votes(gain: Array, query_numbers: Array) -> Array:
    """Mean gain of each query (Q,), from that of each event (n,): a query that is asked often has one vote, too."""
    _, query = np.unique(query_numbers, return_inverse=True)
    means: Array = np.bincount(query, gain) / np.bincount(query) if len(gain) else np.empty(0)
    return means


def newest(query_numbers: Array, queries: int) -> int:
    """Index of the first of the newest events that together ask this many different queries; 0 if all ask fewer."""
    seen: set[int] = set()
    for index in range(len(query_numbers) - 1, -1, -1):
        seen.add(int(query_numbers[index]))
        if len(seen) == queries:
            return index
    return 0
