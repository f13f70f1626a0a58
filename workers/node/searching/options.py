"""Options of every search: query expansion, and what a distance is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from omdml.errors import MeasureError, OmdmlError
from omdml.workers.node.galleries.gallery import Gallery, Hits, NoEmbedding, Query, Searchable

MAX_EXPAND = 100


class SearchError(OmdmlError):
    """A query that cannot be answered; ``reason`` is a code that never changes."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Options(NamedTuple):
    """Options of a search.

    Parameters
    ----------
    expand
        Number of nearest items that a second search starts from, too; 0 for a single search.
    explain
        Whether the answer says what each part of the metric adds to a distance.
    """

    expand: int = 0
    explain: bool = False


PLAIN = Options()


def nearest_each(index: Searchable, queries: Sequence[Query], k: int) -> list[Hits] | None:
    """The k closest rows to each query; None if the index cannot prove one of the answers."""
    if isinstance(index, Gallery) and len(queries) > 1:
        return index.nearest_each(queries, k)
    answers = []
    for query in queries:
        hits = index.nearest(query, k)
        if hits is None:
            return None
        answers.append(hits)
    return answers


def expanded_each(
    index: Searchable, queries: Sequence[Query], count: int, alive: NDArray[np.bool_] | None = None
) -> list[Query] | None:
    """Each query moved towards its ``count`` nearest rows that are ``alive``, whatever it may be answered with.

    None if the index cannot prove which these are.

    Raises SearchError ``no_expansion`` if the metric has no embedding to move a query in.
    """
    if not 0 <= count <= MAX_EXPAND:
        raise SearchError(f"expand is {count}, expected 0 (off) to {MAX_EXPAND}", "invalid")
    moved = []
    for query in queries:
        try:
            wide = index.expanded(query._replace(among=alive, pushed=None), count) if count else query
        except NoEmbedding as error:
            raise SearchError(f"expand: {error}: search without", "no_expansion") from error
        if wide is None:
            return None
        moved.append(wide._replace(among=query.among, pushed=query.pushed))
    return moved


def explained(index: Searchable, query: Query, rows: NDArray[np.int64]) -> list[dict[str, float]]:
    """What adds up to the distance of each row; raises SearchError ``no_parts`` if the distance is no sum."""
    try:
        parts = index.parts(query, rows)
    except MeasureError as error:
        raise SearchError(f"explain: {error}: search without", "no_parts") from error
    columns = np.stack(list(parts.values()), axis=1).tolist()
    return [dict(zip(parts, row, strict=True)) for row in columns]


def too_large(queries: Sequence[Query]) -> str:
    """A message about the modality of the queries that lies too far out to be compared."""
    sizes: dict[str, float] = {}
    for query in queries:
        for name, table in (query.features or {}).items():
            sizes[name] = max(sizes.get(name, 0.0), float(np.abs(table).max()))
    if not sizes:
        return "the query items lie too far from others"
    name = max(sizes, key=lambda name: sizes[name])
    return f"query: modality {name!r} is too large, it holds {sizes[name]:.3g} as the catalogue scales it"
