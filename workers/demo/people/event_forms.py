"""The forms that what people say can have: each learner takes one of them."""

from __future__ import annotations

import time
from collections.abc import Callable

from omdml.feedback import AnyFeedback, Pair, Quadruplet, SetJudgement, Triplet
from omdml.workers.demo.people.person import Comparison

# Makes an event of model, task, what is said, and after how many others.
Form = Callable[[str, str | None, Comparison, int], AnyFeedback]


def triplet(model: str, task: str | None, comparison: Comparison, turn: int) -> Triplet:
    """The comparison as a triplet event."""
    query, relevant, irrelevant = comparison
    return Triplet(model=model, query=query, relevant=relevant, irrelevant=irrelevant, at=time.time())


def pair(model: str, task: str | None, comparison: Comparison, turn: int) -> Pair:
    """In turn, that the query and what is relevant are similar, and that it and what is irrelevant are not."""
    similar = turn % 2 == 0
    right = comparison.relevant if similar else comparison.irrelevant
    return Pair(
        model=model, left=comparison.query, right=right, similar=similar, task=task or "default", at=time.time()
    )


def ordered_pair(model: str, task: str | None, comparison: Comparison, turn: int) -> Quadruplet:
    """In turn, that what is relevant has more than the query, and the query more than what is irrelevant (LAW 2.4)."""
    more, less = (comparison.relevant, comparison.query) if turn % 2 == 0 else (comparison.query, comparison.irrelevant)
    return Quadruplet(model=model, near=(less, less), far=(more, less), at=time.time())


def judgement(model: str, task: str | None, comparison: Comparison, turn: int) -> SetJudgement:
    """One set that answers the query, and one that does not."""
    query, relevant, irrelevant = comparison
    return SetJudgement(model=model, query=(query,), relevant=(relevant,), irrelevant=(irrelevant,), at=time.time())
