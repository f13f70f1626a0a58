"""What people know who search for sets: the labels of the items in each set."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from omdml.workers.demo.people.labels import Labels

# The numbers of items that sets have, in turn.
SIZES = (2, 3, 4, 5)


class Albums:
    """Sets of open items. A set fits a query if it holds an item with the query's label.

    Parameters
    ----------
    labels
        The labels of the items, and which of them are held out. Held-out items are in no set.
    sets
        The item ids of each set id.
    """

    task = None

    def __init__(self, labels: Labels, sets: Mapping[str, Sequence[str]]) -> None:
        self.queries, self.held_out = labels.queries, labels.held_out
        self._labels, self._shown = labels, {name: {labels.of[item] for item in items} for name, items in sets.items()}
        all_labels = set(labels.of.values())
        self._showing = {label: [name for name, shown in self._shown.items() if label in shown] for label in all_labels}
        self._lacking = {
            label: [name for name, shown in self._shown.items() if label not in shown] for label in all_labels
        }

    @property
    def answers(self) -> int:
        """Every set may answer a query."""
        return len(self._shown)

    def fits(self, query: str, answer: str) -> bool:
        """Whether the set ``answer`` holds an item with the query's label."""
        return self._labels.of[query] in self._shown.get(answer, ())

    def is_open(self, answer: str) -> bool:
        """Whether ``answer`` is a set; all sets may be marked."""
        return answer in self._shown

    def among(self, query: str, fitting: bool) -> Sequence[str]:
        """The sets that hold an item with the query's label, or those that do not."""
        return (self._showing if fitting else self._lacking)[self._labels.of[query]]


def made_albums(items: Sequence[str], count: int, seed: int) -> dict[str, list[str]]:
    """Draw ``count`` sets of two to five of these items each, named ``album-000`` and so on."""
    draw = random.Random(seed)
    return {f"album-{turn:03d}": draw.sample(items, SIZES[turn % len(SIZES)]) for turn in range(count)}
