"""A simulated person: what they look for, and what they mark on the page that a node shows them.

Which marks teach most was measured on the digits (mAP of held-out queries after 1,000 and 10,000 comparisons, from
0.69; pages of 50, three marks of each kind a search, 5 % wrong, `shown` being how often a mark goes to an item of the
page and not to one found elsewhere):

=====================================================  =====  ======
policy                                                 1,000  10,000
=====================================================  =====  ======
triplets drawn without a page                          0.84   0.92
every mark on the page                                 0.81   0.85
relevant shown 0, irrelevant shown 0                   0.86   0.93
relevant shown 1/2, irrelevant shown 1/2               0.85   0.93
relevant shown 0, irrelevant shown 1/2                 0.89   0.94
**relevant shown 1/4, irrelevant shown 3/4**           0.87   0.95
=====================================================  =====  ======

What is relevant and already on top teaches little; what is relevant and missing from the page, and what stands on it
wrongly, teaches most. A ranking of 3 x 3 teaches less than three triplets each time, for nine times the comparisons of
one search are not nine times as new (0.90 after 10,000).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from workers.demo.labels import Labels


class Habits(NamedTuple):
    """How people search and mark.

    Parameters
    ----------
    page
        Items looked at of each answer.
    marks
        Items marked as relevant, and as many as irrelevant, a search.
    relevant_shown, irrelevant_shown
        How often a mark goes to an item of the page, where there is a fitting one; the others are found elsewhere.
    wrong
        Share of marks that say the opposite of the truth.
    """

    page: int = 50
    marks: int = 3
    relevant_shown: float = 0.25
    irrelevant_shown: float = 0.75
    wrong: float = 0.05


class Comparison(NamedTuple):
    """For who looks for ``query``, ``relevant`` fits better than ``irrelevant``."""

    query: str
    relevant: str
    irrelevant: str


class Person:
    """Somebody who knows the labels, but errs at times. The same seed sees, chooses and errs alike."""

    def __init__(self, labels: Labels, habits: Habits, seed: str) -> None:
        self._labels, self._habits = labels, habits
        self._draw = random.Random(seed)

    def think(self) -> str:
        """An item to search for."""
        return self._draw.choice(self._labels.queries)

    def compare(self, query: str, shown: Sequence[str]) -> list[Comparison]:
        """What the person's marks say once ``shown`` was the answer: ``marks`` comparisons, give or take one or two.

        Every mark is part of a comparison; none is where all marks are of one kind.
        """
        relevant, irrelevant = self._err(self._mark(query, shown, True), self._mark(query, shown, False))
        if not relevant or not irrelevant:
            return []
        return [
            Comparison(query, relevant[turn % len(relevant)], irrelevant[turn % len(irrelevant)])
            for turn in range(max(len(relevant), len(irrelevant)))
        ]

    def _mark(self, query: str, shown: Sequence[str], relevant: bool) -> list[str]:
        """Items that truly are what they are marked as, none twice."""
        habits, draw = self._habits, self._draw
        seen = [item for item in shown if self._fits(query, item, relevant)]
        draw.shuffle(seen)
        often = habits.relevant_shown if relevant else habits.irrelevant_shown
        marked: dict[str, None] = {}
        for _ in range(habits.marks):
            marked[seen.pop() if seen and draw.random() < often else self._browse(query, relevant)] = None
        return list(marked)

    def _fits(self, query: str, item: str, relevant: bool) -> bool:
        labels = self._labels
        return item != query and labels.is_open(item) and (labels.of[item] == labels.of[query]) is relevant

    def _browse(self, query: str, relevant: bool) -> str:
        """An item found elsewhere than on the page."""
        label = self._labels.of[query]
        among = self._labels.alike[label] if relevant else self._labels.open
        while not self._fits(query, item := self._draw.choice(among), relevant):
            pass
        return item

    def _err(self, relevant: list[str], irrelevant: list[str]) -> tuple[list[str], list[str]]:
        """The marks with some of them inverted."""
        said: tuple[list[str], list[str]] = ([], [])
        for truly_irrelevant, items in enumerate((relevant, irrelevant)):
            for item in items:
                said[truly_irrelevant ^ (self._draw.random() < self._habits.wrong)].append(item)
        return said
