"""A simulated person: what they search for, and what they mark on the page that a node shows them.

Which marks teach most was measured on the digits. The table shows the mAP of held-out queries after 1,000 and after
10,000 comparisons; before, it was 0.72. Each search had three marks of each kind, 5 % of marks were wrong, and three
seeds differed by 0.01 at most.

===========================================================  =====  ======
marks that go to items of the page; others go anywhere       1,000  10,000
===========================================================  =====  ======
all                                                          0.83   0.88
none                                                         0.87   0.93
half                                                         0.88   0.94
a quarter of the relevant, three quarters of the irrelevant  0.89   0.95
the same, on pages of 10 instead of 50                       0.87   0.93
the same, sent as a ranking of 3 x 3                         0.87   0.93
only the irrelevant                                          0.91   0.95
===========================================================  =====  ======

A relevant item on the page teaches little. An irrelevant item on the page, or a relevant one that is missing, teaches
most. Three comparisons for each search teach more per comparison than nine. The demo's people mark as in the fourth
line, because real people also mark relevant items on the page now and then.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from omdml.workers.demo.people.ground_truth import Truth


class Habits(NamedTuple):
    """How people search and mark.

    Parameters
    ----------
    page
        How many items of each answer they look at.
    marks
        How many items they mark as relevant in each search; they mark as many as irrelevant.
    relevant_shown, irrelevant_shown
        The share of marks of this kind that go to an item of the page, if one fits. The others go to items elsewhere.
    wrong
        The share of marks that say the opposite of the truth.
    """

    page: int = 50
    marks: int = 3
    relevant_shown: float = 0.25
    irrelevant_shown: float = 0.75
    wrong: float = 0.05


class Comparison(NamedTuple):
    """For somebody who searches for ``query``, ``relevant`` fits better than ``irrelevant``."""

    query: str
    relevant: str
    irrelevant: str


class Person:
    """Somebody who knows the truth, but sometimes makes mistakes. The same seed makes the same choices and mistakes."""

    def __init__(self, truth: Truth, habits: Habits, seed: str) -> None:
        self._truth, self._habits = truth, habits
        self._draw = random.Random(seed)

    def think(self) -> str:
        """Choose an item to search for."""
        return self._draw.choice(self._truth.queries)

    def compare(self, query: str, shown: Sequence[str]) -> list[Comparison]:
        """Mark items of the answer ``shown``; returns about ``marks`` comparisons.

        Every mark is part of a comparison. If all marks are of one kind, there are no comparisons.
        """
        relevant, irrelevant = self._err(self._mark(query, shown, True), self._mark(query, shown, False))
        if not relevant or not irrelevant:
            return []
        return [
            Comparison(query, relevant[turn % len(relevant)], irrelevant[turn % len(irrelevant)])
            for turn in range(max(len(relevant), len(irrelevant)))
        ]

    def _mark(self, query: str, shown: Sequence[str], relevant: bool) -> list[str]:
        """Choose items to mark, all different. They truly are relevant, or irrelevant: mistakes come later."""
        habits, draw = self._habits, self._draw
        seen = [item for item in shown if self._fits(query, item, relevant)]
        draw.shuffle(seen)
        often = habits.relevant_shown if relevant else habits.irrelevant_shown
        marked: dict[str, None] = {}
        for _ in range(habits.marks):
            marked[seen.pop() if seen and draw.random() < often else self._browse(query, relevant)] = None
        return list(marked)

    def _fits(self, query: str, item: str, relevant: bool) -> bool:
        truth = self._truth
        return item != query and truth.is_open(item) and truth.fits(query, item) is relevant

    def _browse(self, query: str, relevant: bool) -> str:
        """Choose an item from anywhere, not only from the page."""
        among = self._truth.among(query, relevant)
        while not self._fits(query, item := self._draw.choice(among), relevant):
            pass
        return item

    def _err(self, relevant: list[str], irrelevant: list[str]) -> tuple[list[str], list[str]]:
        """Turn some marks into the opposite, by mistake."""
        answers: tuple[list[str], list[str]] = ([], [])
        for truly_irrelevant, items in enumerate((relevant, irrelevant)):
            for item in items:
                answers[truly_irrelevant ^ (self._draw.random() < self._habits.wrong)].append(item)
        return answers
