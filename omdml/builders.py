"""Builders of comparisons: from labels, result pages, ordered attributes, taxonomies and versions (MATHS 7)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from omdml.errors import FeedbackError, ParameterError

Array = NDArray[Any]


class Quadruplets(NamedTuple):
    """What learners of quadruplets take: ``learn_many(rows, features, margin=margin)``."""

    # Near pair and far pair.
    rows: Array  # (T, 4)
    margin: Array  # (T,)


class Pairs(NamedTuple):
    """What learners of pairs take: ``learn_many(rows, features, similar=similar, task=...)``."""

    rows: Array  # (T, 2)
    similar: Array  # (T,) of bool


def from_labels(labels: ArrayLike, count: int, seed: int, among: ArrayLike | None = None) -> Array:
    """Random triplets (count, 3): a query, an item of its label, an item of another (OMDML 5.2).

    Parameters
    ----------
    labels : (n,)
    among
        Rows to draw from; all by default. Every label there needs two items, and there must be two labels.

    Examples
    --------
    >>> from_labels([0, 0, 1, 1], 2, seed=0).tolist()
    [[3, 2, 1], [2, 3, 0]]
    """
    tree, draw = _labelled(labels, among), np.random.default_rng(seed)
    at = draw.integers(0, len(tree.order), count)
    return tree.order[np.stack([at, tree.partner(at, 1, draw), tree.partner(at, 0, draw)], axis=1)]


def pairs_from_labels(labels: ArrayLike, count: int, seed: int, among: ArrayLike | None = None) -> Pairs:
    """Random pairs, half of one label and half of two (CP-mtML 4), in random order; an odd one is of two.

    Parameters
    ----------
    labels : (n,)
        Of one task: pairs of several tasks are drawn one task at a time.
    among
        Rows to draw from; all by default. Every label there needs two items, and there must be two labels.

    Examples
    --------
    >>> rows, similar = pairs_from_labels([0, 0, 1, 1], 4, seed=0)
    >>> rows.tolist(), similar.tolist()
    ([[1, 2], [0, 1], [0, 1], [0, 3]], [False, True, True, False])
    """
    tree, draw = _labelled(labels, among), np.random.default_rng(seed)
    similar = draw.permutation(np.arange(count) < count // 2)
    at = draw.integers(0, len(tree.order), count)
    other = np.where(similar, tree.partner(at, 1, draw), tree.partner(at, 0, draw))
    return Pairs(tree.order[np.stack([at, other], axis=1)], similar)


def from_taxonomy(paths: ArrayLike, count: int, seed: int, among: ArrayLike | None = None) -> Array:
    """Random triplets (count, 3) of a query and two items of which one is nearer kin (LAW 2.5.1).

    With parents and classes as paths: an item of the same class is closer than one of a sibling class, and one of a
    sibling class closer than one of a cousin. Queries and degrees of kinship are drawn evenly among those that have
    both kinds of items.

    Parameters
    ----------
    paths : (n, K)
        Each item's way down the taxonomy, from the most general node to its class.
    among
        Rows to draw from; all by default.

    Examples
    --------
    >>> from_taxonomy([["cat", "tabby"], ["cat", "siamese"], ["dog", "beagle"]], 2, seed=0).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    tree, draw = _Tree.of(np.asarray(paths), among), np.random.default_rng(seed)
    kin = tree.size[:-1] - tree.size[1:]  # (K + 1, n) items that share this many nodes exactly
    depth, at = np.nonzero((kin[1:] > 0) & (kin[:-1] > 0))
    if len(at) == 0:
        raise FeedbackError("no item has nearer and further kin: give paths of several nodes that items share")
    chosen = draw.integers(0, len(at), count)
    depth, at = depth[chosen], at[chosen]
    return tree.order[np.stack([at, tree.partner(at, depth + 1, draw), tree.partner(at, depth, draw)], axis=1)]


def from_pages(
    queries: ArrayLike, pages: ArrayLike, relevant: ArrayLike, count: int, seed: int, critical: float = 0.5
) -> Array:
    """Triplets (T, 3) from result pages: all relevant items against irrelevant ones (RANK 5).

    Of a page's irrelevant items, a share are the *critical* ones, those ranked highest, and the rest are drawn from
    below them (the paper has half and half ahead of critical ones alone; on digits both were level). Where a page has
    fewer than ``count``, it gives all it has.

    Parameters
    ----------
    queries : (Q,)
    pages : (Q, n)
        Items as they were ranked for each query; the query itself is passed over.
    relevant : (Q, n) of bool
    count
        Irrelevant items taken of a page.
    critical
        Share of them that are critical, in [0, 1].

    Examples
    --------
    >>> from_pages([0], [[1, 2, 3, 4, 5]], [[False, True, False, False, False]], count=2, seed=0).tolist()
    [[0, 2, 1], [0, 2, 5]]
    """
    if not 0 <= critical <= 1:
        raise ParameterError(f"critical={critical!r}: expected a share in [0, 1]")
    draw, made = np.random.default_rng(seed), [np.empty((0, 3), np.int64)]
    for query, page, hits in zip(np.asarray(queries), np.asarray(pages), np.asarray(relevant, bool), strict=True):
        right, wrong = page[hits & (page != query)], page[~hits & (page != query)]
        top, rest = np.split(wrong, [round(critical * count)])
        against = np.concatenate([top, draw.permutation(rest)[: count - len(top)]])
        near, far = np.meshgrid(right, against, indexing="ij")
        made.append(np.stack([np.full(near.size, query), near.ravel(), far.ravel()], axis=1))
    return np.concatenate(made)


def from_ordered_pairs(levels: ArrayLike, count: int, seed: int, among: ArrayLike | None = None) -> Quadruplets:
    """Random pairs ``e < f`` of an attribute, as comparisons of (f, e) with the zero pair (e, e) (LAW 2.4).

    Parameters
    ----------
    levels : (n,)
        How much of the attribute each item has: only the order counts.
    among
        Rows to draw from; all by default.

    Examples
    --------
    >>> from_ordered_pairs([10, 20, 30], 2, seed=0).rows.tolist()
    [[1, 1, 2, 1], [0, 0, 2, 0]]
    """
    drawn, draw = _Levels.of(levels, among, 2), np.random.default_rng(seed)
    e, f = drawn.rising(count, 2, draw)
    return Quadruplets(np.stack([e, e, f, e], axis=1), np.ones(count))


def from_order(levels: ArrayLike, count: int, seed: int, among: ArrayLike | None = None) -> Quadruplets:
    """Random ``e < f < g < h`` of an attribute: (g, f) closer than (h, e), by 1 (LAW 2.4.1).

    Parameters
    ----------
    levels : (n,)
        How much of the attribute each item has, at least four different values: only the order counts.
    among
        Rows to draw from; all by default.

    Examples
    --------
    >>> from_order([10, 20, 30, 40], 1, seed=0).rows.tolist()
    [[2, 1, 3, 0]]
    """
    drawn, draw = _Levels.of(levels, among, 4), np.random.default_rng(seed)
    e, f, g, h = drawn.rising(count, 4, draw)
    return Quadruplets(np.stack([g, f, h, e], axis=1), np.ones(count))


def from_ties(levels: ArrayLike, count: int, seed: int, among: ArrayLike | None = None) -> Quadruplets:
    """Random ``e < f ~ g < h`` of an attribute: (f, g) and (g, f) closer than (h, e), by 1 (LAW Eq. 2.13).

    Parameters
    ----------
    levels : (n,)
        How much of the attribute each item has; between the least and the most there must be two items alike.
    count
        How many are drawn: each gives two comparisons, one after the other.
    among
        Rows to draw from; all by default.

    Examples
    --------
    >>> from_ties([10, 20, 20, 30], 1, seed=0).rows.tolist()
    [[2, 1, 3, 0], [1, 2, 3, 0]]
    """
    drawn, draw = _Levels.of(levels, among, 3), np.random.default_rng(seed)
    tied = 1 + np.flatnonzero(drawn.size[1:-1] > 1)
    if len(tied) == 0:
        raise FeedbackError("no level between the lowest and the highest has two items: none are alike")
    middle = draw.choice(tied, count)
    e, h = drawn.item(draw.integers(0, middle), draw), drawn.item(draw.integers(middle + 1, len(drawn.size)), draw)
    place = draw.integers(0, drawn.size[middle])
    other = (place + draw.integers(1, drawn.size[middle])) % drawn.size[middle]
    f, g = drawn.order[drawn.begin[middle] + place], drawn.order[drawn.begin[middle] + other]
    rows = np.stack([f, g, h, e, g, f, h, e], axis=1).reshape(-1, 4)
    return Quadruplets(rows, np.ones(len(rows)))


def from_versions(versions: ArrayLike, period: int, count: int, seed: int) -> Quadruplets:
    """Random comparisons from the versions of something that changes (LAW 4.2.1).

    Versions t and t + 1 are closer than r and s, ``r <= t < s``: by 1 if ``s >= r + period >= t + 1``, else by 0.

    Parameters
    ----------
    versions : (n,)
        Rows of the versions in the order of time, at least three.
    period
        Versions after which a change is taken for granted, > 1.

    Examples
    --------
    >>> rows, margin = from_versions([6, 7, 8, 9], period=2, count=3, seed=0)
    >>> rows.tolist(), margin.tolist()
    ([[8, 9, 7, 9], [7, 8, 7, 9], [7, 8, 7, 9]], [1.0, 1.0, 1.0])
    """
    if period <= 1:
        raise ParameterError(f"period={period!r}: expected a number of versions above 1")
    order, draw = np.asarray(versions), np.random.default_rng(seed)
    n = len(order)
    if n < 3:
        raise FeedbackError(f"{n} versions: at least three are needed")
    t = draw.integers(0, n - 1, count)
    later = n - 1 - t
    # Number 0 of the pairs around (t, t + 1) is that pair itself.
    other = draw.integers(1, (t + 1) * later)
    r, s = t - other // later, t + 1 + other % later
    margin = np.where((s >= r + period) & (r + period >= t + 1), 1.0, 0.0)
    return Quadruplets(order[np.stack([t, t + 1, r, s], axis=1)], margin)


class _Tree(NamedTuple):
    """Items in the order of their paths, so that those below one node lie side by side."""

    # Row numbers.
    order: Array  # (n,)
    # Place at which the node above each item begins: the root, ..., the class, the item itself.
    begin: Array  # (K + 2, n)
    # Number of items below that node.
    size: Array  # (K + 2, n)

    @classmethod
    def of(cls, paths: Array, among: ArrayLike | None) -> _Tree:
        """The items in rows ``among`` of ``paths`` (n, K), in a tree."""
        rows = np.arange(len(paths)) if among is None else np.asarray(among)
        codes = np.stack([np.unique(column, return_inverse=True)[1] for column in paths[rows].T])
        sequence = np.lexsort(codes[::-1])
        codes, place = codes[:, sequence], np.arange(len(rows))
        differs = np.logical_or.accumulate(codes[:, 1:] != codes[:, :-1], axis=0)
        begin, size = [np.zeros_like(place)], [np.full_like(place, len(rows))]
        for step in differs:
            first = np.flatnonzero(np.concatenate([[True], step]))
            count = np.diff(first, append=len(rows))
            begin.append(np.repeat(first, count))
            size.append(np.repeat(count, count))
        return cls(rows[sequence], np.stack([*begin, place]), np.stack([*size, np.ones_like(place)]))

    def partner(self, at: Array, shared: int | Array, draw: np.random.Generator) -> Array:
        """Places of random items that share exactly this many nodes with the items at these places."""
        begin, size = self.begin[shared, at], self.size[shared, at]
        inner, taken = self.begin[np.add(shared, 1), at], self.size[np.add(shared, 1), at]
        return begin + (inner + taken - begin + draw.integers(0, size - taken)) % size


def _labelled(labels: ArrayLike, among: ArrayLike | None) -> _Tree:
    tree = _Tree.of(np.asarray(labels)[:, None], among)
    kinds = len(np.unique(tree.begin[1]))
    rarest = int(tree.size[1].min(initial=len(tree.order)))
    if kinds < 2 or rarest < 2:
        raise FeedbackError(f"{kinds} labels, the rarest with {rarest} items: two of each are needed")
    return tree


class _Levels(NamedTuple):
    """Items in the order of an attribute, and where each level of it begins."""

    # Row numbers.
    order: Array  # (n,)
    begin: Array  # (L,)
    size: Array  # (L,)

    @classmethod
    def of(cls, levels: ArrayLike, among: ArrayLike | None, least: int) -> _Levels:
        """The items in rows ``among``; raises FeedbackError if they have fewer than ``least`` levels."""
        levels = np.asarray(levels)
        rows = np.arange(len(levels)) if among is None else np.asarray(among)
        order = rows[np.argsort(levels[rows], kind="stable")]
        _, begin, size = np.unique(levels[order], return_index=True, return_counts=True)
        if len(begin) < least:
            raise FeedbackError(f"{len(begin)} levels of the attribute, at least {least} are needed")
        return cls(order, begin, size)

    def item(self, level: Array, draw: np.random.Generator) -> Array:
        """Rows of a random item of each of these levels."""
        return self.order[self.begin[level] + draw.integers(0, self.size[level])]

    def rising(self, count: int, steps: int, draw: np.random.Generator) -> list[Array]:
        """Rows (count,) of items of the lowest, the next, ... of so many random levels."""
        loose = np.sort(draw.integers(0, len(self.size) - steps + 1, (count, steps)), axis=1)
        return [self.item(loose[:, step] + step, draw) for step in range(steps)]
