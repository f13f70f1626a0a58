"""What moved in the answer to one item between two versions of a model."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from omdml.workers.node.searching.answers import Found, Paging
from omdml.workers.node.searching.options import Options, SearchError
from omdml.workers.node.view import View

# Ranks are counted up to this place. An item further down has none.
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


def compare_versions(before: View, after: View, item: str, k: int, task: str | None, expand: int) -> Comparison:
    """Compare two versions; raises SearchError as searches do."""
    if not 1 <= k <= DEPTH:
        raise SearchError(f"k is {k}, expected 1 to {DEPTH}", "bad_k")
    old, new = ranked(before, item, task, expand), ranked(after, item, task, expand)
    old_ranks, new_ranks = ranks(old), ranks(new)
    # In the order of the later answer, then what only the earlier one has.
    ids = dict.fromkeys(answered.id for answered in (*new.items[:k], *old.items[:k]))
    moved = [moved_of(name, old_ranks, new_ranks) for name in ids if old_ranks.get(name) != new_ranks.get(name)]
    first, second = Side(old.version, old.items[:k]), Side(new.version, new.items[:k])
    return Comparison(after.snapshot.model, item, first, second, moved)


def ranked(view: View, item: str, task: str | None, expand: int) -> Side:
    """The answer of one version, as deep as ranks are counted."""
    query = view.query([item])
    answers = view.search_each([query], DEPTH, task, Paging(), Options(expand))
    return Side(answers.version, answers.answers[0])


def ranks(side: Side) -> dict[str, int]:
    """The rank of each item of an answer, from 1 on."""
    return {answered.id: rank for rank, answered in enumerate(side.items, start=1)}


def moved_of(item: str, before: Mapping[str, int], after: Mapping[str, int]) -> Moved:
    """How one item's rank differs between two answers."""
    was, now = before.get(item), after.get(item)
    return Moved(item, was, now, was - now if was and now else None)
