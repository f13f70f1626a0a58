"""What the guard decided last about a model, in words that need no mathematics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from omdml.errors import OmdmlError
from omdml.snapshot import Snapshot
from omdml.streams.protocols.store import SnapshotStore
from omdml.streams.stores.journal import PINNED
from omdml.workers.configuration.wording import amount
from omdml.workers.versions.targets import TAKEN_BACK, Line

ALLOWED, WITHHELD, NOT_JUDGED = "allowed", "withheld", "not judged"
FIGURE = "guard_"
# The numbers are FEWEST and VOTES of the guard.
NOTHING_COMPARED = (
    "Nothing was compared since the worker started. "
    "A judgement takes 32 held-out events of at least 8 queries; "
    "about one event in guard.hold_out (default 50) is held out."
)


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The guard's last decision about a model.

    ``decision`` is ``allowed``, ``withheld``, ``taken back`` (an earlier version is live again) or ``not judged``.
    ``margin`` says by how much ``version`` orders held-out events better (above 0) or worse (below 0) than the version
    ``reference``. If nothing was compared, ``version``, ``reference``, ``margin``, ``doubt`` and ``queries`` are null.
    """

    model: str
    decision: str
    at: float | None
    reason: str
    version: int | None
    reference: int | None
    margin: float | None
    doubt: float | None
    queries: int | None
    sentence: str

    @property
    def in_a_line(self) -> str:
        """Decision, reason and sentence in a line."""
        verdict = ": ".join(part for part in (self.decision, self.reason) if part)
        return ". ".join(part for part in (verdict, self.sentence) if part)


def judgement(store: SnapshotStore, model: str, live: Callable[[], Snapshot | None]) -> Judgement:
    """The guard's last decision about a model, from its history and the snapshot that the decision was about.

    ``live`` gives the live snapshot. Raises StoreError if the store cannot be asked.
    """
    line = newest_decision(store.history(model))
    decision = {"held": WITHHELD, TAKEN_BACK: TAKEN_BACK}.get(line["what"], ALLOWED) if line else NOT_JUDGED
    judged = live() if line is None or decision != WITHHELD else stored_snapshot(store, model, line["version"])
    if judged and line and decision == WITHHELD and judged.digest != line["digest"]:
        # Another snapshot of this version takes its place.
        judged = None
    figures = compared(judged.progress if judged else {})
    if not figures and decision == ALLOWED:
        decision = NOT_JUDGED
    reason = line["reason"] if line and decision in (WITHHELD, TAKEN_BACK) else ""
    return Judgement(
        model=model,
        decision=decision,
        at=line["at"] if line and decision != NOT_JUDGED else None,
        reason=reason,
        **{name: figures.get(name) for name in ("version", "reference", "margin", "doubt", "queries")},
        sentence=NOTHING_COMPARED if decision == NOT_JUDGED else sentence(figures, allowed=decision == ALLOWED),
    )


def newest_decision(lines: Sequence[Line]) -> Line | None:
    """The newest line of a history that a decision of the guard brought about; None if there is none.

    What a pin holds back was allowed by the guard.
    """
    for line in reversed(lines):
        if line["what"] in ("published", TAKEN_BACK) or (line["what"] == "held" and line["reason"] != PINNED):
            return line
        if line["what"] == "reset":
            return None
    return None


def stored_snapshot(store: SnapshotStore, model: str, version: int | None) -> Snapshot | None:
    """The snapshot of a version, by default the live one; None if it cannot be read."""
    try:
        loaded = store.load(model, version)
    except OmdmlError:
        return None
    return loaded[1] if loaded else None


def compared(progress: Mapping[str, Any]) -> dict[str, Any]:
    """The guard's comparison among the figures of a snapshot; empty if it has none."""
    return {name.removeprefix(FIGURE): value for name, value in progress.items() if name.startswith(FIGURE)}


def sentence(figures: Mapping[str, Any], *, allowed: bool = False) -> str:
    """A comparison of two versions in plain words; empty if there is none."""
    if not figures:
        return ""
    margin, doubt = figures["margin"], figures["doubt"]
    if abs(margin) <= doubt:
        verdict, how = "No sure difference", "about as far ahead as"
    else:
        worse = "Worse, but not by enough to withhold it" if allowed else "Worse"
        verdict, how = ("Better", "further ahead than") if margin > 0 else (worse, "less far ahead than")
    queries = amount(figures["queries"], "query", "queries")
    return (
        f"{verdict}. On clicks about {queries}, which are never learned, version "
        f"{figures['version']:,} puts what people chose {how} version {figures['reference']:,} does: margin "
        f"{margin:+.3f}, give or take {doubt:.3f}."
    )
