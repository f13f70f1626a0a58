"""Turn feedback into comparisons: which pair should be closer than which other pair (MATHS 1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omdml.errors import FeedbackError
from omdml.feedback import (
    MAX_COMPARISONS,
    ONLY_TASK,
    AnyFeedback,
    Page,
    Pair,
    Quadruplet,
    Ranking,
    SetJudgement,
    Triplet,
    kind_of,
)

__all__ = [
    "Conversion",
    "Judgement",
    "conversion",
    "judged",
    "pairs",
    "preferred",
    "quadruplets",
    "triplets",
    "weights",
]

Array = NDArray[Any]
# The lowest weight of a comparison. The square of a lower one could vanish in a sum with the squares of others.
LEAST_WEIGHT = 1e-6


class Judgement(NamedTuple):
    """An event for learners of sets: row numbers of the query's elements, and of the elements of each judged set."""

    query: Array
    relevant: tuple[Array, ...]
    irrelevant: tuple[Array, ...]


Conversion = Callable[[AnyFeedback], list[str]]


def conversion(accepts: Collection[str]) -> Conversion:
    """The function that turns an event into item ids, one comparison after another, for a learner.

    ``accepts`` are the kinds of comparison that the learner takes. Which kinds of feedback it takes follows from them.
    """
    convert = next(convert for kind, convert in CONVERSIONS.items() if kind in accepts)
    # A lambda, because a partial with a keyword takes three times as long to call.
    return lambda event: convert(event, accepts)


def triplets(event: AnyFeedback, accepts: Collection[str]) -> list[str]:
    """Item ids of the event's triplets, three by three: query, relevant, irrelevant.

    A ranking gives its first relevant item with every irrelevant one, then the second relevant item, and so on. A page
    gives the pairs of :func:`preferred`. A similar pair becomes (left, right, left) and a dissimilar pair
    (left, left, right), because an item paired with itself teaches nothing.

    Raises
    ------
    FeedbackError
        ``not_accepted`` if the learner does not take this kind, ``nothing_compared`` if there is no comparison, as on
        a page on which everything was clicked, ``too_many`` for more than 1,000 comparisons, ``unknown_task`` for a
        pair that names a task, because learners of triplets have no tasks.
    """
    if "triplet" in accepts:
        if type(event) is Triplet:
            return [event.query, event.relevant, event.irrelevant]
        if type(event) is Ranking:
            check_count(event, len(event.relevant) * len(event.irrelevant), "comparisons")
            return [item for r in event.relevant for s in event.irrelevant for item in (event.query, r, s)]
        if type(event) is Page:
            compared = preferred(event)
            check_count(event, len(compared), "comparisons")
            return [item for r, s in compared for item in (event.query, r, s)]
        if type(event) is Pair and "pair" in accepts:
            check_no_task(event)
            if event.similar:
                return [event.left, event.right, event.left]
            return [event.left, event.left, event.right]
    raise not_accepted(event, accepts)


def weights(counts: Array) -> Array:
    """How much each comparison of an event counts, by the event's number of comparisons (n,) (MATHS 12 (m)).

    A search with many comparisons is still one person's opinion. So a ranking of R relevant and I irrelevant items
    counts for ``sqrt(R I)``, not for R I.

    Examples
    --------
    >>> weights(np.array([1, 4, 25]))
    array([1. , 0.5, 0.2])
    """
    return np.asarray(1 / np.sqrt(counts))


def preferred(page: Page) -> list[tuple[str, str]]:
    """Pairs of a clicked item and an item that was passed over, in the order of the page (MATHS 14).

    An item was passed over if it was not clicked and stands above the clicked one, or in the lower half of the page.
    The query itself is not a result, so it is ignored if it was shown. The list is empty if nothing was passed over.

    Examples
    --------
    >>> preferred(Page(model="shop", query="q", shown=tuple("abcdef"), clicked=("b", "f")))
    [('b', 'a'), ('b', 'd'), ('b', 'e'), ('f', 'a'), ('f', 'c'), ('f', 'd'), ('f', 'e')]
    """
    clicked = set(page.clicked)
    shown = [item for item in in_order(page) if item != page.query]
    lower_half = len(shown) // 2
    others = [(rank, item) for rank, item in enumerate(shown) if item not in clicked]
    return [
        (item, other)
        for rank, item in enumerate(shown)
        if item in clicked
        for other_rank, other in others
        if other_rank < rank or other_rank >= lower_half
    ]


def in_order(page: Page) -> Sequence[str]:
    """The shown items in the order in which people see them, from the top."""
    if page.positions is None:
        return page.shown
    return [item for _, item in sorted(zip(page.positions, page.shown, strict=True))]


def quadruplets(event: AnyFeedback, accepts: Collection[str]) -> list[str]:
    """Item ids of the event's quadruplets, four by four: near pair, then far pair.

    A triplet is (query, relevant) and (query, irrelevant). Raises the errors of :func:`triplets`.
    """
    if type(event) is Quadruplet:
        return [*event.near, *event.far]
    compared = triplets(event, accepts)
    queries, relevant, irrelevant = compared[::3], compared[1::3], compared[2::3]
    return [item for q, r, s in zip(queries, relevant, irrelevant, strict=True) for item in (q, r, q, s)]


def pairs(event: AnyFeedback, accepts: Collection[str]) -> list[str]:
    """The two item ids of a pair; raises FeedbackError ``not_accepted`` for other kinds of feedback."""
    if type(event) is Pair:
        return [event.left, event.right]
    raise not_accepted(event, accepts)


def judged(event: AnyFeedback, accepts: Collection[str]) -> list[str]:
    """Ids in a judgement of sets: the query's elements, the relevant sets, the irrelevant sets.

    Raises
    ------
    FeedbackError
        ``not_accepted`` for other kinds of feedback, ``too_many`` for more than 1,000 ids.
    """
    if type(event) is SetJudgement:
        ids = [*event.query, *event.relevant, *event.irrelevant]
        check_count(event, len(ids), "ids")
        return ids
    raise not_accepted(event, accepts)


# In this order, because learners of quadruplets learn triplets as quadruplets, too.
CONVERSIONS: dict[str, Callable[..., list[str]]] = {
    "quadruplet": quadruplets,
    "triplet": triplets,
    "pair": pairs,
    "set": judged,
}


def check_count(event: AnyFeedback, count: int, what: str) -> None:
    """Refuse an event that compares nothing, or more than the limit."""
    if not count:
        why = " (perhaps all were clicked)" if type(event) is Page else ""
        message = f"{kind_of(event)} of 0 {what}: it puts no item before another{why}. Do not send it"
        raise FeedbackError(message, reason="nothing_compared")
    if count > MAX_COMPARISONS:
        message = f"{kind_of(event)} of {count} {what}, at most {MAX_COMPARISONS} are taken: send fewer items"
        raise FeedbackError(message, reason="too_many")


def check_no_task(event: Pair) -> None:
    """Refuse a pair that names a task."""
    if event.task != ONLY_TASK:
        message = f"pair of task {event.task!r}, but model {event.model!r} has one sense of similar"
        raise FeedbackError(f"{message}: leave the task out, or choose a learner of tasks", reason="unknown_task")


def not_accepted(event: AnyFeedback, accepts: Collection[str]) -> FeedbackError:
    """The error for feedback of a kind that a learner does not take."""
    learned = ", ".join(f"{kind}s" for kind in sorted(accepts))
    message = f"model {event.model!r} learns {learned}, got a {kind_of(event)}"
    advice = "send what it learns, or choose a learner that learns this kind (docs/learners.md)"
    return FeedbackError(f"{message}: {advice}", reason="not_accepted")
