"""A simulated person: what they search for, and what they mark on the page that a node shows them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from omdml.workers.demo.people.ground_truth import Truth
from omdml.workers.demo.people.habits import Habits


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
        candidates = self._truth.among(query, relevant)
        while not self._fits(query, item := self._draw.choice(candidates), relevant):
            pass
        return item

    def _err(self, relevant: list[str], irrelevant: list[str]) -> tuple[list[str], list[str]]:
        """Turn some marks into the opposite, by mistake."""
        answers: tuple[list[str], list[str]] = ([], [])
        for truly_irrelevant, items in enumerate((relevant, irrelevant)):
            for item in items:
                answers[truly_irrelevant ^ (self._draw.random() < self._habits.wrong)].append(item)
        return answers
