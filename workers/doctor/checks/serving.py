"""Whether nodes can serve what is live, and why newer versions are not."""

from __future__ import annotations

import time
from collections.abc import Iterable

from omdml.streams.protocols.store import SnapshotStore
from omdml.workers.configuration.wording import amount, span, when
from omdml.workers.doctor.findings import Remark, error, warning
from omdml.workers.doctor.remarks import gathered
from omdml.workers.versions.serving import KindOf, Standing, standing

# Seconds to spend on all models together, because thousands of snapshots take longer.
LOOK_S = 10.0
LONG_WITHHELD_S = 3600.0
OLD_PIN_S = 86_400.0
RECENT_DRIFT_S = 86_400.0


class ServedModels:
    """What was seen of all models, by kind of problem and by model."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.looked = self.live = self.pins = 0
        self.unservable: dict[str, str] = {}
        self.long_withheld: dict[str, str] = {}
        self.withheld: dict[str, str] = {}
        self.reset: dict[str, str] = {}
        self.pinned: dict[str, str] = {}
        self.drifted: dict[str, str] = {}

    def add(self, name: str, standing: Standing) -> None:
        """Sort a model by what is wrong with it, if anything."""
        self.live, self.pins = self.live + 1, self.pins + standing.pointer.pinned
        pointer, version = standing.pointer, f"version {standing.pointer.version:,}"
        since = f"{when(pointer.published_at)} ({span(self.now - pointer.published_at)} ago)"
        pinned = f", pinned there since {since}," if pointer.pinned else ""
        if standing.problem:
            unpin = f"Unpin it (omdml unpin {name}), and if newer versions do not fit either, " if pinned else ""
            remedy = unpin + standing.problem.remedy if pinned else sentence(standing.problem.remedy)
            self.unservable[name] = (
                f"model {name}: {version} is live{pinned} but no node can load it: {standing.problem.text}. Nodes that "
                "run go on with the version that they have. One that starts now takes the newest that it can load. "
                f"{remedy}"
            )
            return
        if standing.withheld:
            problems = self.long_withheld if self.now - standing.withheld.since >= LONG_WITHHELD_S else self.withheld
            problems[name] = (
                f"model {name}: newer versions have been withheld since {when(standing.withheld.since)} "
                f"({span(self.now - standing.withheld.since)} ago), and nodes stay at {version} of "
                f"{when(pointer.published_at)}. Why: {standing.withheld.reason}. "
                f"If the newest feedback is sound, this ends by itself. If it is not, stop whoever sends it, then "
                f"learn the log again without it (omdml learn-on {name} --since TIME --until TIME, or --without-user "
                f"USER), or begin again (omdml models reset {name}). omdml history {name} has every decision"
            )
        if standing.reset_at is not None:
            self.reset[name] = (
                f"model {name}: {version} is live{pinned} and was learned before the reset of "
                f"{when(standing.reset_at)}: nodes answer with what was to be forgotten. End that: omdml unpin {name}"
            )
        elif pointer.pinned and self.now - pointer.published_at >= OLD_PIN_S:
            self.pinned[name] = (
                f"model {name}: pinned at {version} since {since}: nothing that is learned goes live. "
                f"If that is no longer wanted: omdml unpin {name}"
            )
        if standing.drift and self.now - standing.drift["at"] < RECENT_DRIFT_S:
            self.drifted[name] = (
                f"model {name}: drift was noticed at {when(standing.drift['at'])}: {standing.drift['reason']}. "
                "If taste or items did not change then, look for feedback of a new or broken sender"
            )

    def remarks(self) -> list[Remark]:
        """The remarks on all models, errors before warnings."""
        errors, warnings = (self.unservable, self.long_withheld), (self.withheld, self.reset, self.pinned, self.drifted)
        return [
            *(remark for problems in errors for remark in gathered(problems, error)),
            *(remark for problems in warnings for remark in gathered(problems, warning)),
        ]


def sentence(text: str) -> str:
    """The text with a capital letter at its beginning, unless it begins with a command; names stay as they are.

    Examples
    --------
    >>> sentence("restart the nodes of Shop")
    'Restart the nodes of Shop'
    >>> sentence("omdml models reset Shop")
    'omdml models reset Shop'
    """
    return text if text.startswith("omdml ") else text[:1].upper() + text[1:]


def look_at_serving(
    store: SnapshotStore, names: Iterable[str], kind_of: KindOf, now: float, look_s: float = LOOK_S
) -> ServedModels:
    """What nodes can serve of these models, as far as ``look_s`` allows.

    Raises StoreError if the store cannot be asked.
    """
    seen, until = ServedModels(now), time.monotonic() + look_s
    for name in names:
        if time.monotonic() >= until:
            break
        seen.looked += 1
        if state := standing(store, name, kind_of):
            seen.add(name, state)
    return seen


def serving(seen: ServedModels, count: int) -> str | list[Remark]:
    """What is wrong with what nodes can serve of this many models."""
    scope = "" if seen.looked == count else f" (only {seen.looked:,} of {count:,} were looked at in {LOOK_S:.0f} s)"
    pinned = f", {seen.pins} pinned" if seen.pins else ""
    if not seen.live:
        return f"nothing is published yet{scope}"
    return seen.remarks() or f"nodes can load what is live of {amount(seen.live, 'model')}{pinned}{scope}"
