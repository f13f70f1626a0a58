"""Models that a pattern covers and the store does not list: how many may begin, and how fast."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from omdml.errors import FeedbackError
from omdml.streams.protocols.store import Store
from omdml.workers.configuration.config import is_pattern
from omdml.workers.configuration.specs import Spec, Specs
from omdml.workers.model.allowance import Allowance

# Seconds between two looks at the store's list; more if the looks take long.
LOOK_S = 1.0
# Looks take at most one part in this many of the time.
SHARE = 50
# After this many new models the worker looks at its clock and its signals again.
MAX_NEW_A_TURN = 100


class Newcomers:
    """Counts the models of each pattern by the store's list of models, and how many of them begin in a second.

    A name that the store lists may always go on. Another one may begin as long as the list holds fewer names of its
    pattern than ``max_models``. The list is read again at most a second later, so what other workers begin within that
    second may come on top of the limit, and a model that was deleted makes room a second later. With tens of thousands
    of names it is some seconds.

    Parameters
    ----------
    rate
        New models a second.
    """

    def __init__(self, rate: float = math.inf) -> None:
        self._allowance = Allowance(rate)
        self._listed: set[str] = set()
        # How many there are of each pattern.
        self._counts: Counter[str] = Counter()
        self._next_look = -math.inf

    def room(self, now: float) -> int:
        """How many new models may begin in this turn."""
        self._allowance.grow(now)
        return int(max(0.0, min(MAX_NEW_A_TURN, self._allowance.left)))

    def began(self, count: int) -> None:
        """Note that this many new models began."""
        self._allowance.spend(count)

    def admit(
        self, names: Sequence[str], specs: Specs, store: Store, clock: Callable[[], float]
    ) -> tuple[list[str], list[str]]:
        """Which of these names, none of which has a checkpoint, may begin, and which may not, both in order.

        The store is looked at if there is need.
        """
        begin: list[str] = []
        refused: list[str] = []
        if any(is_pattern(specs.of(name).label) for name in names):
            self._look(specs, store, clock)
        for name in names:
            spec = specs.of(name)
            if is_pattern(spec.label) and name not in self._listed:
                if self._counts[spec.label] >= spec.max_models:
                    refused.append(name)
                    continue
                self._listed.add(name)
                self._counts[spec.label] += 1
            begin.append(name)
        return begin, refused

    def _look(self, specs: Specs, store: Store, clock: Callable[[], float]) -> None:
        began = clock()
        if began < self._next_look:
            return
        listed = set(store.models())
        # Patterns are slow to match, and most names were there at the last look.
        self._counts.update(_patterns(listed - self._listed, specs))
        self._counts.subtract(_patterns(self._listed - listed, specs))
        self._listed = listed
        took = clock() - began
        self._next_look = began + max(LOOK_S, SHARE * took)


def _patterns(names: Iterable[str], specs: Specs) -> Iterator[str]:
    """The name or pattern in the configuration that covers each of these names, if there is one."""
    return (matched[0] for name in names if (matched := specs.configuration.match(name)))


def too_many_models(name: str, spec: Spec) -> FeedbackError:
    """The error for an event of a name that must not begin a model."""
    return FeedbackError(
        f"model {name!r} is new, and the store lists {spec.max_models:,} models of {spec.label!r} already. Raise "
        f"max_models in [models.{spec.label!r}], or delete models that nobody needs (omdml models delete). Then run "
        "omdml letters resend",
        reason="too_many_models",
    )
