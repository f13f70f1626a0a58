"""The kinds of events that people can send. Each learner takes one of them."""

from __future__ import annotations

import time
from collections.abc import Callable

from omdml.feedback import AnyFeedback, Pair, Quadruplet, SetJudgement, Triplet
from omdml.workers.demo.people.person import Comparison

# Makes an event from model, task, comparison, and the number of comparisons before it.
Form = Callable[[str, str | None, Comparison, int], AnyFeedback]


def triplet(model: str, task: str | None, comparison: Comparison, turn: int) -> Triplet:
    """The comparison as a triplet event."""
    query, relevant, irrelevant = comparison
    return Triplet(model=model, query=query, relevant=relevant, irrelevant=irrelevant, at=time.time())


def pair(model: str, task: str | None, comparison: Comparison, turn: int) -> Pair:
    """A pair event: in turn, query and relevant item are similar, or query and irrelevant item are not."""
    similar = turn % 2 == 0
    right = comparison.relevant if similar else comparison.irrelevant
    return Pair(
        model=model, left=comparison.query, right=right, similar=similar, task=task or "default", at=time.time()
    )


def ordered_pair(model: str, task: str | None, comparison: Comparison, turn: int) -> Quadruplet:
    """A quadruplet event (LAW 2.4): in turn, relevant has more than the query, or the query more than irrelevant."""
    more, less = (comparison.relevant, comparison.query) if turn % 2 == 0 else (comparison.query, comparison.irrelevant)
    return Quadruplet(model=model, near=(less, less), far=(more, less), at=time.time())


def judgement(model: str, task: str | None, comparison: Comparison, turn: int) -> SetJudgement:
    """A set event: one set answers the query, and another one does not."""
    query, relevant, irrelevant = comparison
    return SetJudgement(model=model, query=(query,), relevant=(relevant,), irrelevant=(irrelevant,), at=time.time())
