"""Events that bring vectors of their own, and queries made of nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError, FeedbackError
from omdml.feedback import Feedback
from omdml.streams.protocols.catalogue import Catalogue

# The vectors of one item: raw numbers by modality.
RawVectors = Mapping[str, Sequence[float]]


class InlineTable:
    """The items that some events touch, from the catalogue and from the events themselves.

    An inline item overrides the catalogue's of the same id, for its event only: each event has rows of its own for it.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        # In which row of this table a row of the catalogue stands.
        self._row_of: dict[int, int] = {}
        self._inline: list[tuple[int, dict[str, NDArray[np.float32]]]] = []

    def __len__(self) -> int:
        return len(self._row_of) + len(self._inline)

    def add(self, event: Feedback, ids: Sequence[str]) -> NDArray[np.int64]:
        """Rows (len(ids),) in this table of items that the event names.

        Raises
        ------
        FeedbackError
            ``unknown_item``, and what :func:`scaled_vectors` raises; the table is as it was before.
        """
        own_vectors = event.features or {}
        distinct = list(dict.fromkeys(ids))
        inline = {
            item: scaled_vectors(self._catalogue, f"item {item!r}", own_vectors[item])
            for item in distinct
            if item in own_vectors
        }
        catalogue_rows = self._catalogue_rows([item for item in distinct if item not in own_vectors])
        rows = {item: self._row_of.setdefault(row, len(self)) for item, row in catalogue_rows.items()}
        for item, vectors in inline.items():
            rows[item] = len(self)
            self._inline.append((rows[item], vectors))
        return np.array([rows[item] for item in ids], np.int64)

    @property
    def features(self) -> dict[str, NDArray[np.float32]]:
        """A matrix (k, d) a modality, scaled: what the rows handed out so far point into."""
        places, sources = list(self._row_of.values()), list(self._row_of)
        tables = {}
        for name, dim in self._catalogue.dims.items():
            table = np.empty((len(self), dim), np.float32)
            table[places] = self._catalogue.features[name][sources]
            for row, vectors in self._inline:
                table[row] = vectors[name][0]
            tables[name] = table
        return tables

    def _catalogue_rows(self, ids: Sequence[str]) -> dict[str, int]:
        rows = self._catalogue.rows(ids).tolist()
        if -1 in rows:
            raise unknown_item(self._catalogue, ids[rows.index(-1)])
        return dict(zip(ids, rows, strict=True))


def unknown_item(catalogue: Catalogue, item: str) -> FeedbackError:
    """The error for an item that is not in the catalogue, and comes without vectors."""
    return FeedbackError(
        f"event: item {item!r} is not in the catalogue (generation {catalogue.generation}), and the event brings no "
        "vectors for it. Put the item first, or send its features with the event",
        reason="unknown_item",
    )


def scaled_vectors(
    catalogue: Catalogue, owner: str, vectors: RawVectors, some: bool = False
) -> dict[str, NDArray[np.float32]]:
    """Raw vectors of one item, or of a query, as a table of one row: (1, d) a modality of the catalogue's features.

    ``owner``: whose vectors they are, as the message says it.
    ``some``: modalities may be missing, and get their conditional means; one must be there.

    Raises
    ------
    FeedbackError
        ``missing_modality``, ``dimension``, ``not_finite``; ``invalid`` for a modality that the catalogue lacks.
        The message names owner and modality.
    """
    needed = {name: dim for name, dim in catalogue.raw_dims.items() if not (some and vectors) or name in vectors}
    _check_modalities(owner, vectors, catalogue.raw_dims, needed)
    for name, dim in needed.items():
        if (count := len(vectors[name])) != dim:
            raise FeedbackError(
                f"{owner}: modality {name!r} has {count} number{'s' * (count != 1)}, the catalogue's have {dim}",
                reason="dimension",
            )
    try:
        table = {name: np.array([vectors[name]], np.float64) for name in needed}
        return catalogue.scale_some(table) if some else catalogue.scale(table)
    except CatalogueError as error:
        raise FeedbackError(f"{owner}: {error}", reason="not_finite") from error


def _check_modalities(
    owner: str, vectors: Iterable[str], expected: Mapping[str, int], needed: Mapping[str, int]
) -> None:
    expectation = f"the catalogue has {', '.join(expected)}"
    if missing := sorted(needed.keys() - set(vectors)):
        raise FeedbackError(f"{owner}: modality {missing[0]!r} is missing: {expectation}", reason="missing_modality")
    if unknown := sorted(set(vectors) - expected.keys()):
        raise FeedbackError(f"{owner}: modality {unknown[0]!r} is unknown: {expectation}")
