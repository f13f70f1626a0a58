"""What every catalogue does with the items in this process: number them, scale raw vectors as theirs were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError
from streams.catalogues.manifest import Manifest, Modality
from streams.catalogues.scaling import not_finite, scaled
from streams.catalogues.sets import ItemSet


class Items:
    """Base of the catalogues: ids in the order of their rows, the matrices, and sets of items.

    About 150 bytes an item beside its vectors: a million take 0.15 GB. Items are only ever added, by one thread: their
    vectors are there before their ids are known, so whoever asks for rows first and for ``features`` then finds them.
    """

    def __init__(self, manifest: Manifest, where: str) -> None:
        self.manifest = manifest
        self.where = where
        self.generation = manifest.generation
        self.dims: Mapping[str, int] = manifest.dims
        self.first = 0
        self.features: Mapping[str, NDArray[np.float32]] = {}
        self._ids: list[str] = []
        self._row_of: dict[str, int] = {}
        self.ids: Sequence[str] = self._ids
        self.sets: Mapping[str, NDArray[np.int64]] = {}

    def __contains__(self, one: object) -> bool:
        """Whether an item of this id is known."""
        return one in self._row_of

    def rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Row numbers of these ids, -1 for an unknown one."""
        return np.fromiter(map(self._row_of.get, ids, repeat(-1)), np.int64, len(ids))

    def scale(self, vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """Raw vectors (n, d) a modality, scaled as the catalogue's own were.

        Raises
        ------
        CatalogueError
            A missing or unknown modality, a wrong dimension, a value that is not finite or that float32 cannot hold.
        """
        if vectors.keys() != self.dims.keys():
            raise CatalogueError(
                f"vectors of {', '.join(sorted(vectors)) or 'no modality'}, catalogue {self.where} has "
                f"{', '.join(sorted(self.dims))}: bring one of each"
            )
        return {name: _scaled(name, self.manifest.modalities[name], vectors[name]) for name in self.dims}

    def _know(self, ids: Iterable[str]) -> None:
        """Number these ids on from the last one; their vectors are in ``features``."""
        first = len(self._ids)
        self._ids.extend(ids)
        self._row_of.update(zip(self._ids[first:], range(first, len(self._ids)), strict=True))
        if len(self._row_of) != len(self._ids):
            raise CatalogueError(f"catalogue {self.where} names an id twice: build it again")

    def _know_sets(self, sets: Sequence[ItemSet]) -> None:
        """Look up the elements of these sets, whose items are known. Whoever reads goes on with the mapping it has."""
        if not sets:
            return
        rows = self.rows([item for one in sets for item in one.items])
        if rows.min(initial=0) < 0:
            raise CatalogueError(f"catalogue {self.where}: a set names an item that is not there: build it again")
        rows.flags.writeable = False
        ends = np.cumsum([len(one.items) for one in sets])
        added = {one.set: rows[end - len(one.items) : end] for one, end in zip(sets, ends, strict=True)}
        self.sets = {**self.sets, **added}


def _scaled(name: str, modality: Modality, raw: NDArray[Any]) -> NDArray[np.float32]:
    try:
        vectors = np.asarray(raw, np.float64)
    except (TypeError, ValueError) as error:
        raise CatalogueError(f"modality {name!r}: not numbers (n, {modality.dim}): {error}") from error
    if vectors.ndim != 2 or vectors.shape[1] != modality.dim:
        raise CatalogueError(f"modality {name!r}: shape {vectors.shape}, expected (n, {modality.dim})")
    made = scaled(modality.scaling, vectors)
    if at := not_finite(vectors) or not_finite(made):
        raise CatalogueError(
            f"modality {name!r}: row {at[0]}, column {at[1]} is {vectors[at]}, which makes no finite float32"
        )
    return made
