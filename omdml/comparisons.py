"""Feedback to comparisons: which pair should be closer than which (MATHS 1), and builders of feedback (MATHS 7)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from omdml.errors import FeedbackError
from omdml.feedback import MAX_COMPARISONS, AnyFeedback, Ranking, Triplet

Array = NDArray[Any]


class Judgement(NamedTuple):
    """What a learner of sets learns from: row numbers of a query's elements, and of each judged set's elements."""

    query: Array
    relevant: tuple[Array, ...]
    irrelevant: tuple[Array, ...]


def triplets(event: AnyFeedback, accepts: Collection[str]) -> list[str]:
    """Item ids of the event's triplets, three by three: query, relevant, irrelevant; a ranking's relevant-major.

    Raises
    ------
    FeedbackError
        ``not_accepted`` where the learner does not take this kind, ``too_many`` beyond 1,000 comparisons.
    """
    if "triplet" in accepts:
        if type(event) is Triplet:
            return [event.query, event.relevant, event.irrelevant]
        if type(event) is Ranking:
            count = len(event.relevant) * len(event.irrelevant)
            if count > MAX_COMPARISONS:
                raise FeedbackError(
                    f"ranking of {len(event.relevant)} x {len(event.irrelevant)} = {count} comparisons, at most "
                    f"{MAX_COMPARISONS} are taken: send fewer items",
                    reason="too_many",
                )
            return [item for r in event.relevant for s in event.irrelevant for item in (event.query, r, s)]
    kind, learned = type(event).__struct_config__.tag, ", ".join(f"{kind}s" for kind in sorted(accepts))
    raise FeedbackError(f"model {event.model!r} learns {learned}, got a {kind}", reason="not_accepted")


def from_labels(labels: ArrayLike, count: int, seed: int, among: ArrayLike | None = None) -> Array:
    """Random triplets (count, 3): a query, an item of its label, an item of another (OMDML 5.2).

    Parameters
    ----------
    labels : (n,)
    among
        Rows to draw from; all by default. Every label there needs two items, and there must be two labels.

    Examples
    --------
    >>> from_labels([0, 0, 1, 1], 2, seed=0).shape
    (2, 3)
    """
    labels = np.asarray(labels)
    rows = np.arange(len(labels)) if among is None else np.asarray(among)
    draw = np.random.default_rng(seed)
    order = rows[np.argsort(labels[rows], kind="stable")]
    _, begin, size = np.unique(labels[order], return_index=True, return_counts=True)
    if len(size) < 2 or size.min() < 2:
        raise FeedbackError(f"{len(size)} labels, the rarest with {size.min()} items: two of each are needed")
    at = draw.integers(0, len(order), count)
    group = np.searchsorted(begin, at, side="right") - 1
    relevant = begin[group] + (at - begin[group] + draw.integers(1, size[group])) % size[group]
    irrelevant = (begin[group] + size[group] + draw.integers(0, len(order) - size[group])) % len(order)
    return np.stack([order[at], order[relevant], order[irrelevant]], axis=1)
