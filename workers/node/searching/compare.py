"""What moved in the answer to one item between two versions of a model."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from omdml.workers.node.live_model import View
from omdml.workers.node.searching.answers import Found, Page
from omdml.workers.node.searching.options import Options, SearchError

# Places that ranks are told of: an item beyond has none.
DEPTH = 1_000


class Side(msgspec.Struct, frozen=True):
    """The answer of one version to the query."""

    version: int
    items: list[Found]


class Moved(msgspec.Struct, frozen=True):
    """An item of either answer whose rank differs."""

    id: str
    before: int | None
    after: int | None
    rose: int | None


class Comparison(msgspec.Struct, frozen=True):
    """The answers of two versions to one item, and what moved, in the order of the later answer."""

    model: str
    id: str
    before: Side
    after: Side
    moved: list[Moved]


def compared(before: View, after: View, item: str, k: int, task: str | None, expand: int) -> Comparison:
    """What moved; raises SearchError as searches do."""
    if not 1 <= k <= DEPTH:
        raise SearchError(f"k is {k}, expected 1 to {DEPTH}", "bad_k")
    first, second = (ranked(view, item, task, expand) for view in (before, after))
    was, now = ({name.id: rank for rank, name in enumerate(side.items, start=1)} for side in (first, second))
    ids = dict.fromkeys(name.id for side in (second, first) for name in side.items[:k])
    moved = [moved_of(name, was, now) for name in ids if was.get(name) != now.get(name)]
    first, second = Side(first.version, first.items[:k]), Side(second.version, second.items[:k])
    return Comparison(after.snapshot.model, item, first, second, moved)


def ranked(view: View, item: str, task: str | None, expand: int) -> Side:
    """The answer of one version as deep as ranks are told."""
    query = view.query([item])
    answers = view.search_each([query], DEPTH, task, Page(), Options(expand))
    return Side(answers.version, answers.answers[0])


def moved_of(item: str, before: Mapping[str, int], after: Mapping[str, int]) -> Moved:
    """How one item's rank and distance differ between two answers."""
    was, now = before.get(item), after.get(item)
    return Moved(item, was, now, was - now if was and now else None)
