"""For callers of learners: comparisons from labels, pages, ordered attributes, taxonomies and versions (MATHS 7)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from omdml.errors import FeedbackError, quoted
from omdml.learners.shared.checks import Array, expect, is_number, is_whole


class Quadruplets(NamedTuple):
    """Arguments for learners of quadruplets: ``learn_many(rows, features, margin=margin)``."""

    # Near pair and far pair.
    rows: Array  # (T, 4)
    margin: Array  # (T,)


class Pairs(NamedTuple):
    """Arguments for learners of pairs: ``learn_many(rows, features, similar=similar, task=...)``."""

    rows: Array  # (T, 2)
    similar: Array  # (T,) of bool


def from_labels(labels: ArrayLike, count: int, seed: int, among: ArrayLike | None = None) -> Array:
    """Random triplets (count, 3): a query, an item of the same label, an item of another label (OMDML 5.2).

    Parameters
    ----------
    labels : (n,)
    among
        Rows to draw from; all by default.

    Raises
    ------
    FeedbackError
        Fewer than two labels, or a label with a single item.

    Examples
    --------
    >>> from_labels([0, 0, 1, 1], 2, seed=0).tolist()
    [[3, 2, 1], [2, 3, 0]]
    """
    tree, draw = _labelled(labels, among), _drawing(count, seed)
    query = draw.integers(0, len(tree.order), count)
    return tree.order[np.stack([query, tree.partner(query, 1, draw), tree.partner(query, 0, draw)], axis=1)]


def pairs_from_labels(labels: ArrayLike, count: int, seed: int, among: ArrayLike | None = None) -> Pairs:
    """Random pairs in random order, half of them of the same label (CP-mtML 4); an odd last pair has two labels.

    Parameters
    ----------
    labels : (n,)
        Labels of one task. Draw pairs of several tasks one task at a time.
    among
        Rows to draw from; all by default.

    Raises
    ------
    FeedbackError
        Fewer than two labels, or a label with a single item.

    Examples
    --------
    >>> rows, similar = pairs_from_labels([0, 0, 1, 1], 4, seed=0)
    >>> rows.tolist(), similar.tolist()
    ([[1, 2], [0, 1], [0, 1], [0, 3]], [False, True, True, False])
    """
    tree, draw = _labelled(labels, among), _drawing(count, seed)
    similar = draw.permutation(np.arange(count) < count // 2)
    item = draw.integers(0, len(tree.order), count)
    other = np.where(similar, tree.partner(item, 1, draw), tree.partner(item, 0, draw))
    return Pairs(tree.order[np.stack([item, other], axis=1)], similar)


def from_taxonomy(paths: ArrayLike, count: int, seed: int, among: ArrayLike | None = None) -> Array:
    """Random triplets (count, 3) of a query and two items, the first of which is more closely related (LAW 2.5.1).

    With a parent node and a class in each path, an item of the same class is closer than an item of a sibling class,
    and that is closer than an item of any other class. Queries and degrees of relationship are drawn uniformly among
    those for which both items exist.

    Parameters
    ----------
    paths : (n, K)
        Each item's path in the taxonomy, from the most general node down to its class.
    among
        Rows to draw from; all by default.

    Raises
    ------
    FeedbackError
        No item has both nearer and further kin.

    Examples
    --------
    >>> from_taxonomy([["cat", "tabby"], ["cat", "siamese"], ["dog", "beagle"]], 2, seed=0).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    tree, draw = _Tree.of(*_sorted_items("paths", paths, 2, among)), _drawing(count, seed)
    # (K + 1, n): how many items share exactly this many nodes with each item.
    related = tree.size[:-1] - tree.size[1:]
    depth, item = np.nonzero((related[1:] > 0) & (related[:-1] > 0))
    if len(item) == 0:
        raise FeedbackError("no item has both nearer and further kin: give paths of several nodes that items share")
    chosen = draw.integers(0, len(item), count)
    depth, item = depth[chosen], item[chosen]
    return tree.order[np.stack([item, tree.partner(item, depth + 1, draw), tree.partner(item, depth, draw)], axis=1)]


def from_pages(
    queries: ArrayLike, pages: ArrayLike, relevant: ArrayLike, count: int, seed: int, critical: float = 0.5
) -> Array:
    """Triplets (T, 3) from result pages: all relevant items against irrelevant ones (RANK 5).

    A share of the irrelevant items are the *critical* ones, which are ranked highest. The others are drawn from below
    them. (In the paper half and half is better than critical items alone; on digits both were equal.) A page with fewer
    than ``count`` irrelevant items gives all of them.

    Parameters
    ----------
    queries : (Q,)
    pages : (Q, n)
        Items in the order of their ranks for each query. The query itself is ignored.
    relevant : (Q, n) of bool
    count
        Irrelevant items to take from a page.
    critical
        Share of critical items among them, in [0, 1].

    Raises
    ------
    ParameterError
        ``critical`` out of range.

    Examples
    --------
    >>> from_pages([0], [[1, 2, 3, 4, 5]], [[False, True, False, False, False]], count=2, seed=0).tolist()
    [[0, 2, 1], [0, 2, 5]]
    """
    expect(is_number(critical) and 0 <= critical <= 1, "critical", critical, "a share in [0, 1]")
    draw, triplets = _drawing(count, seed), [np.empty((0, 3), np.int64)]
    asked, ranked, is_hit = _array("queries", queries), _array("pages", pages), _array("relevant", relevant)
    if asked.size and not (ranked.ndim == 2 and is_hit.shape == ranked.shape and asked.shape == ranked.shape[:1]):
        shapes = f"queries of shape {asked.shape}, pages of {ranked.shape}, relevant of {is_hit.shape}"
        raise FeedbackError(f"{shapes}: expected (Q,), (Q, n), (Q, n)")
    for query, page, hits in zip(_rows("queries", asked), _rows("pages", ranked), is_hit.astype(bool), strict=True):
        right, wrong = page[hits & (page != query)], page[~hits & (page != query)]
        highest, lower = np.split(wrong, [round(critical * count)])
        drawn = draw.permutation(lower)[: count - len(highest)]
        near, far = np.meshgrid(right, np.concatenate([highest, drawn]), indexing="ij")
        triplets.append(np.stack([np.full(near.size, query), near.ravel(), far.ravel()], axis=1))
    return np.concatenate(triplets)


def from_ordered_pairs(levels: ArrayLike, count: int, seed: int, among: ArrayLike | None = None) -> Quadruplets:
    """Random pairs of items with attribute ``e < f``, as comparisons of (f, e) with the zero pair (e, e) (LAW 2.4).

    Parameters
    ----------
    levels : (n,)
        How much of the attribute each item has: only the order counts.
    among
        Rows to draw from; all by default.

    Raises
    ------
    FeedbackError
        Fewer than two levels.

    Examples
    --------
    >>> from_ordered_pairs([10, 20, 30], 2, seed=0).rows.tolist()
    [[1, 1, 2, 1], [0, 0, 2, 0]]
    """
    ordered, draw = _Levels.of(levels, among, 2), _drawing(count, seed)
    e, f = ordered.rising(count, 2, draw)
    return Quadruplets(np.stack([e, e, f, e], axis=1), np.ones(count))


def from_order(levels: ArrayLike, count: int, seed: int, among: ArrayLike | None = None) -> Quadruplets:
    """Random items with attribute ``e < f < g < h``: (g, f) is closer than (h, e), by 1 (LAW 2.4.1).

    Parameters
    ----------
    levels : (n,)
        How much of the attribute each item has: only the order counts.
    among
        Rows to draw from; all by default.

    Raises
    ------
    FeedbackError
        Fewer than four levels.

    Examples
    --------
    >>> from_order([10, 20, 30, 40], 1, seed=0).rows.tolist()
    [[2, 1, 3, 0]]
    """
    ordered, draw = _Levels.of(levels, among, 4), _drawing(count, seed)
    e, f, g, h = ordered.rising(count, 4, draw)
    return Quadruplets(np.stack([g, f, h, e], axis=1), np.ones(count))


def from_ties(levels: ArrayLike, count: int, seed: int, among: ArrayLike | None = None) -> Quadruplets:
    """Random items with attribute ``e < f ~ g < h``: (f, g) and (g, f) are closer than (h, e), by 1 (LAW Eq. 2.13).

    Parameters
    ----------
    levels : (n,)
        How much of the attribute each item has: only the order counts.
    count
        Number of draws. Each gives two comparisons, one after the other.
    among
        Rows to draw from; all by default.

    Raises
    ------
    FeedbackError
        Fewer than three levels, or none between the lowest and the highest that two items have.

    Examples
    --------
    >>> from_ties([10, 20, 20, 30], 1, seed=0).rows.tolist()
    [[2, 1, 3, 0], [1, 2, 3, 0]]
    """
    ordered, draw = _Levels.of(levels, among, 3), _drawing(count, seed)
    tied = 1 + np.flatnonzero(ordered.size[1:-1] > 1)
    if len(tied) == 0:
        raise FeedbackError("no level between the lowest and the highest has two items, expected one that has")
    middle = draw.choice(tied, count)
    e = ordered.item(draw.integers(0, middle), draw)
    h = ordered.item(draw.integers(middle + 1, len(ordered.size)), draw)
    place = draw.integers(0, ordered.size[middle])
    other = (place + draw.integers(1, ordered.size[middle])) % ordered.size[middle]
    f, g = ordered.order[ordered.begin[middle] + place], ordered.order[ordered.begin[middle] + other]
    rows = np.stack([f, g, h, e, g, f, h, e], axis=1).reshape(-1, 4)
    return Quadruplets(rows, np.ones(len(rows)))


def from_versions(versions: ArrayLike, period: int, count: int, seed: int) -> Quadruplets:
    """Random comparisons from the versions of something that changes (LAW 4.2.1).

    Versions t and t + 1 are closer than r and s, ``r <= t < s``: by 1 if ``s >= r + period >= t + 1``, else by 0.

    Parameters
    ----------
    versions : (n,)
        Row numbers of the versions in temporal order, at least three.
    period
        Number of versions after which a change is certain, > 1.

    Raises
    ------
    ParameterError
        ``period`` out of range.
    FeedbackError
        Fewer than three versions.

    Examples
    --------
    >>> rows, margin = from_versions([6, 7, 8, 9], period=2, count=3, seed=0)
    >>> rows.tolist(), margin.tolist()
    ([[8, 9, 7, 9], [7, 8, 7, 9], [7, 8, 7, 9]], [1.0, 1.0, 1.0])
    """
    expect(is_whole(period) and period > 1, "period", period, "a number of versions above 1")
    order, draw = _rows("versions", _array("versions", versions)), _drawing(count, seed)
    if order.ndim != 1:
        raise FeedbackError(f"versions of shape {order.shape}, expected (n,)")
    n = len(order)
    if n < 3:
        raise FeedbackError(f"{n} versions, expected at least three")
    t = draw.integers(0, n - 1, count)
    later = n - 1 - t
    # Number 0 of the pairs around (t, t + 1) is that pair itself.
    pair = draw.integers(1, (t + 1) * later)
    r, s = t - pair // later, t + 1 + pair % later
    margin = np.where((s >= r + period) & (r + period >= t + 1), 1.0, 0.0)
    return Quadruplets(order[np.stack([t, t + 1, r, s], axis=1)], margin)


class _Tree(NamedTuple):
    """Items in the order of their paths, so that all items below a node lie side by side."""

    # Row numbers.
    order: Array  # (n,)
    # Place at which the node above each item begins: the root, ..., the class, the item itself.
    begin: Array  # (K + 2, n)
    # Number of items below that node.
    size: Array  # (K + 2, n)

    @classmethod
    def of(cls, paths: Array, rows: Array) -> _Tree:
        """The items in these ``rows`` of ``paths`` (n, K), in a tree."""
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

    def partner(self, places: Array, shared: int | Array, draw: np.random.Generator) -> Array:
        """Places of random items that share exactly ``shared`` nodes with the items at these places."""
        begin, size = self.begin[shared, places], self.size[shared, places]
        # Items below the next node share more nodes, so they are skipped.
        inner, skipped = self.begin[np.add(shared, 1), places], self.size[np.add(shared, 1), places]
        return begin + (inner + skipped - begin + draw.integers(0, size - skipped)) % size


def _drawing(count: int, seed: int) -> np.random.Generator:
    """A generator for ``count`` draws; raises ParameterError unless both numbers are whole and at least 0."""
    for name, value in (("count", count), ("seed", seed)):
        expect(is_whole(value) and value >= 0, name, value, "a whole number of at least 0")
    return np.random.default_rng(seed)


def _array(name: str, values: ArrayLike) -> Array:
    """The values as an array; raises FeedbackError if they are ragged."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise FeedbackError(f"{name}={quoted(values)}: expected an array ({error})") from error


def _rows(name: str, rows: Array) -> Array:
    """These row numbers as they are; raises FeedbackError unless they are whole numbers."""
    if rows.size and rows.dtype.kind not in "iu":
        raise FeedbackError(f"{name} of type {rows.dtype}, expected row numbers")
    return rows.astype(np.int64, copy=False)


def _sorted_items(name: str, values: ArrayLike, dimensions: int, among: ArrayLike | None) -> tuple[Array, Array]:
    """What items are sorted by, (n,) or (n, K), and the rows to draw from: ``among``, or all.

    Raises FeedbackError for another shape, a missing value (NaN or None), or rows that do not exist.
    """
    array = _array(name, values)
    if array.ndim != dimensions or 0 in array.shape[1:]:
        raise FeedbackError(f"{name} of shape {array.shape}, expected {('(n,)', '(n, K)')[dimensions - 1]}")
    # NaN is not equal to itself.
    missing = np.argwhere((array != array) | (array == np.array(None)))
    if missing.size:
        raise FeedbackError(f"row {missing[0][0]} of {name} holds no value: leave the item out")
    if among is None:
        return array, np.arange(len(array))
    rows = _rows("among", _array("among", among))
    if rows.ndim != 1 or (rows.size and not 0 <= rows.min() <= rows.max() < len(array)):
        raise FeedbackError(f"among={quoted(among)}: expected rows (k,) from 0 to {len(array) - 1}")
    return array, rows


def _labelled(labels: ArrayLike, among: ArrayLike | None) -> _Tree:
    """Items in a tree with a node for each label; raises FeedbackError unless there are 2, of 2 items each."""
    array, rows = _sorted_items("labels", labels, 1, among)
    tree = _Tree.of(array[:, None], rows)
    kinds = len(np.unique(tree.begin[1]))
    rarest = int(tree.size[1].min(initial=len(tree.order)))
    if kinds < 2 or rarest < 2:
        raise FeedbackError(f"{kinds} labels, the rarest with {rarest} items, expected at least 2, of 2 items each")
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
        array, rows = _sorted_items("levels", levels, 1, among)
        order = rows[np.argsort(array[rows], kind="stable")]
        _, begin, size = np.unique(array[order], return_index=True, return_counts=True)
        if len(begin) < least:
            raise FeedbackError(f"{len(begin)} levels of the attribute, expected at least {least}")
        return cls(order, begin, size)

    def item(self, level: Array, draw: np.random.Generator) -> Array:
        """The row of a random item of each of these levels."""
        return self.order[self.begin[level] + draw.integers(0, self.size[level])]

    def rising(self, count: int, steps: int, draw: np.random.Generator) -> list[Array]:
        """Rows (count,) of items of ``steps`` random levels, from the lowest to the highest."""
        loose = np.sort(draw.integers(0, len(self.size) - steps + 1, (count, steps)), axis=1)
        return [self.item(loose[:, step] + step, draw) for step in range(steps)]
