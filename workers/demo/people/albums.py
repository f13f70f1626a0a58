"""What people know who look for sets: which labels the items of each set have."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from omdml.workers.demo.people.labels import Labels

# How many items sets have, in turn.
SIZES = (2, 3, 4, 5)


class Albums:
    """Sets of open items: who searches for an item wants the sets that hold one of its label.

    Parameters
    ----------
    labels
        Of the items, and which of them are held out: those are in no set.
    sets
        Item ids by set id.
    """

    task = None

    def __init__(self, labels: Labels, sets: Mapping[str, Sequence[str]]) -> None:
        self.queries, self.held_out = labels.queries, labels.held_out
        self._labels, self._shown = labels, {name: {labels.of[item] for item in items} for name, items in sets.items()}
        known = set(labels.of.values())
        self._showing = {label: [name for name, shown in self._shown.items() if label in shown] for label in known}
        self._lacking = {label: [name for name, shown in self._shown.items() if label not in shown] for label in known}

    @property
    def answers(self) -> int:
        """Every set may answer a query."""
        return len(self._shown)

    def fits(self, query: str, found: str) -> bool:
        """Whether the set holds an item of the query's label."""
        return self._labels.of[query] in self._shown.get(found, ())

    def is_open(self, found: str) -> bool:
        """Whether it is a set: all of them may be marked."""
        return found in self._shown

    def among(self, query: str, fitting: bool) -> Sequence[str]:
        """Sets that hold an item of the query's label, or none."""
        return (self._showing if fitting else self._lacking)[self._labels.of[query]]


def made_albums(items: Sequence[str], count: int, seed: int) -> dict[str, list[str]]:
    """Sets ``album-000`` and so on, of two to five of these items each, at random."""
    draw = random.Random(seed)
    return {f"album-{turn:03d}": draw.sample(items, SIZES[turn % len(SIZES)]) for turn in range(count)}
