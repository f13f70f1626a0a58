"""What every catalogue does with the items in this process: number them, scale raw vectors as theirs were."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from itertools import islice, repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omdml.coordinates import MAPPED
from omdml.errors import CatalogueError
from omdml.retrieval.missing_modalities import Filling
from omdml.streams.catalogues.changes.change import (
    Change,
    Changed,
    ChangeEntry,
    ChangeError,
    Prepared,
    ShownRows,
    Value,
    Vectors,
    kind_of,
    prepare,
)
from omdml.streams.catalogues.changes.describing import described
from omdml.streams.catalogues.changes.settling import SettledChanges
from omdml.streams.catalogues.manifest import Manifest
from omdml.streams.catalogues.mapped_items import MappedItems, mapped_rows, no_map
from omdml.streams.catalogues.scaling import not_finite, scaled_checked
from omdml.streams.catalogues.sets import ItemSet
from omdml.streams.catalogues.verified import checked_describer, checked_map
from omdml.streams.describers.describer import Describer
from omdml.streams.describers.thumbnails import ThumbnailFiles, own_name
from omdml.streams.protocols.catalogue import Catalogue

# How many of the newest changes of attributes are remembered, each by the id of its item.
REMEMBERED = 65_536


class Later(NamedTuple):
    """What came after the build of a catalogue: items that were added, and changes of items."""

    added: int
    changes: int


class Items:
    """Base of the catalogues: ids in the order of their rows, the matrices, and sets of items.

    An item takes about 150 bytes beside its vectors: a million take 0.15 GB. Rows are only ever added, and their
    vectors before their ids. So whoever asks for row numbers first, and for ``features`` after that, finds the vectors.
    The newest row of an id is the item. Rows of items that were put again or deleted stay; ``shown`` says which rows
    are items.

    Any number of threads may read, refresh and change.

    ``map_bytes`` are those of the map that the manifest names, None if it names none.
    """

    def __init__(self, manifest: Manifest, where: str, map_bytes: bytes | None) -> None:
        self.manifest = manifest
        self.where = where
        self.map = checked_map(manifest, where, map_bytes)
        self.generation = manifest.generation
        self.dims: Mapping[str, int] = manifest.dims
        self.raw_dims = self.dims
        self.first = 0
        self.features: Mapping[str, NDArray[np.float32]] = {}
        # Coordinates (n, d), if there is a map.
        self.mapped = np.empty((0, 0), np.float32)
        self._ids: list[str] = []
        self._row_of: dict[str, int] = {}
        self.ids: Sequence[str] = self._ids
        self.sets: Mapping[str, NDArray[np.int64]] = {}
        self.shown = ShownRows()
        self.refreshed_at = 0.0
        # The attributes of items whose attributes were changed.
        self.attributes: dict[str, Mapping[str, Value]] = {}
        self.kinds: dict[str, type] = {}
        # Since ``shown`` was made: rows that are no items any more, how many changes, and how many that touch
        # attributes.
        self._gone: list[int] = []
        self._changes = self._attributed = 0
        # How many rows changes put, and how many changes no build made.
        self._rows_of_changes = self._later_changes = 0
        # The items of the newest changes of attributes, and how many of these changes there were in all.
        self._newly_attributed: deque[str] = deque(maxlen=REMEMBERED)
        self._attributed_in_all = 0
        self._elements: tuple[object, frozenset[int]] = (None, frozenset())
        # One thread at a time takes in what is new, and one changes.
        self._taking_in, self._changing = threading.Lock(), threading.Lock()

    def __contains__(self, item: object) -> bool:
        """Whether an item of this id is known."""
        return item in self._row_of

    def refresh(self) -> int:
        """Take in what was added and changed since; returns how many rows. Rows that were there keep their numbers."""
        with self._taking_in:
            self.refreshed_at = time.monotonic()
            before = self.shown
            self._take_in_all()
            return self.shown.rows - before.rows

    def prepare(self, changes: Iterable[Change]) -> Prepared:
        """Changes of one request, ready to be made; raises ChangeError."""
        changes = list(changes)
        brings = any(change.text is not None or change.picture is not None for change in changes)
        changes, thumbnails = described(self.describer if brings else None, changes)
        return prepare(self.raw_dims, changes, self._to_store)._replace(thumbnails=thumbnails)

    @cached_property
    def describer(self) -> Describer | None:
        """What describes pictures and texts; None if the catalogue was built from vectors alone.

        Raises CatalogueError if it is damaged, or needs a library that is not installed.
        """
        return checked_describer(self.manifest, self.where, self._describer_bytes)

    def _describer_bytes(self) -> bytes | None:
        """The stored bytes of the describer that the manifest names; None if they are gone."""
        raise NotImplementedError

    @property
    def pictures(self) -> ThumbnailFiles:
        raise NotImplementedError

    def change(self, batches: Sequence[Prepared]) -> list[Changed | ChangeError]:
        """Make the changes of some requests, those of each request all or none; returns what became of each.

        They are durable and taken in on return. Whoever has the catalogue open takes them in by a ``refresh()``.

        Raises CatalogueError if none was made, or if it is unknown whether they were: to repeat them does no harm.
        """
        # Others may refresh while this waits for the disk, because whatever they find written is whole.
        with self._changing, self._exclusively():
            self.refresh()
            settled = SettledChanges(self, batches)
            if settled.entries:
                try:
                    self._append(settled.entries, settled.vectors)
                except OSError as error:
                    raise CatalogueError(
                        f"catalogue {self.where} cannot be written ({error}): make room on its disk, or give this user "
                        "the right to write there"
                    ) from error
                self._keep_thumbnails(batches, settled.results)
                self.refresh()
            position = self.shown.position
            return [
                result._replace(position=position) if isinstance(result, Changed) else result
                for result in settled.results
            ]

    def attributed_since(self, count: int) -> set[str] | None:
        # In this order: a change that comes in between makes the answer larger, and never leaves one out.
        newest = self._newly_attributed.copy()
        missing = self._attributed_in_all - count
        if missing > len(newest):
            return None
        return set(islice(reversed(newest), missing))

    def _keep_thumbnails(self, batches: Sequence[Prepared], results: Sequence[Changed | ChangeError]) -> None:
        """Write the thumbnails of batches that were made; remove those of items deleted, or put without a picture."""
        if self.manifest.describer is None:
            return
        for batch, result in zip(batches, results, strict=True):
            for entry in batch.entries if isinstance(result, Changed) else ():
                if (entry.put or entry.delete) and entry.id not in batch.thumbnails:
                    self.pictures.remove(own_name(entry.id))
            for item, data in batch.thumbnails.items() if isinstance(result, Changed) else ():
                self.pictures.write(own_name(item), data)

    @property
    def later(self) -> Later:
        """What came after the build that made the generation."""
        return Later(self.shown.rows - self.first - self._rows_of_changes, self._later_changes)

    def in_sets(self, item: str) -> bool:
        """Whether the item of this id is an element of a set."""
        sets = self.sets
        if self._elements[0] is not sets:
            self._elements = sets, frozenset(row for rows in sets.values() for row in rows.tolist())
        return self._row_of.get(item) in self._elements[1]

    def _take_in_all(self) -> None:
        """Take in all that is new. :meth:`refresh` then counts its rows."""
        raise NotImplementedError

    def _exclusively(self) -> AbstractContextManager[None]:
        """Keeps other writers away, if the place needs it."""
        return nullcontext()

    def _append(self, entries: Sequence[ChangeEntry], vectors: Vectors) -> None:
        """Write changes behind those there are, all or none, and wait until they are durable."""
        raise NotImplementedError

    def _to_store(self, raw: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """What is stored of raw vectors (n, d) of some or all modalities; raises CatalogueError."""
        vectors = self.scale_some(raw)
        return {**vectors, MAPPED: mapped_rows(self.map, vectors)} if self.map else vectors

    @property
    def stored(self) -> Mapping[str, NDArray[np.float32]]:
        """All stored matrices by name: one for each modality, and the mapped coordinates if there is a map."""
        return {**self.features, MAPPED: self.mapped} if self.map else self.features

    def in_coordinates(self, coordinates: str) -> Catalogue:
        """The same items by their ``features``, or by what the map makes of them, ``mapped``.

        Raises CatalogueError if there is no map.
        """
        if coordinates != MAPPED:
            return self
        if self.map is None:
            raise no_map(self.where)
        return MappedItems(self, self.map)

    def rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Row numbers of these ids, -1 for an unknown one."""
        return np.fromiter(map(self._row_of.get, ids, repeat(-1)), np.int64, len(ids))

    def scale_some(self, vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """Scale raw vectors of at least one modality as :meth:`scale` does; the others get their conditional means.

        These are computed from the items that the generation began with, so that they stay the same if items are added.
        Raises CatalogueError as ``scale`` does, but not for a missing modality.
        """
        if not vectors or not vectors.keys() <= self.dims.keys():
            return self.scale(vectors)
        scaled_vectors = {
            name: scaled_checked(name, self.manifest.modalities[name].scaling, self.dims[name], x)
            for name, x in vectors.items()
        }
        if len(scaled_vectors) < len(self.dims):
            scaled_vectors = self._filling(scaled_vectors)
        if not_computed := [name for name, x in scaled_vectors.items() if not_finite(x)]:
            raise CatalogueError(
                f"modality {not_computed[0]!r} is missing, and the others lie too far out to compute it from them: "
                "send it too"
            )
        return scaled_vectors

    @cached_property
    def _filling(self) -> Filling:
        return Filling({name: self.features[name][: self.first] for name in self.dims})

    def scale(self, vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """Raw vectors (n, d) of each modality, scaled as the catalogue's own were.

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
        return {
            name: scaled_checked(name, self.manifest.modalities[name].scaling, self.dims[name], vectors[name])
            for name in self.dims
        }

    def _know(self, ids: Iterable[str]) -> None:
        """Number these ids on from the last one; their vectors are in ``features``."""
        first, id_count = len(self._ids), len(self._row_of)
        self._ids.extend(ids)
        self._row_of.update(zip(self._ids[first:], range(first, len(self._ids)), strict=True))
        if len(self._row_of) - id_count != len(self._ids) - first:
            raise CatalogueError(f"catalogue {self.where} names an id twice: build it again")

    def _apply(self, entries: Iterable[ChangeEntry]) -> None:
        """Make changes that were read, in order; the vectors of those that put are in ``features``."""
        for entry in entries:
            self._changes += 1
            self._rows_of_changes += entry.put
            self._later_changes += not entry.built
            # A deleted item loses its attributes, because a later item with its id must not get them. So deleting it
            # counts as a change of attributes.
            if entry.attributes is not None or (entry.delete and entry.id in self.attributes):
                self._attributed += 1
                self._newly_attributed.append(entry.id)
                self._attributed_in_all += 1
            if entry.put or entry.delete:
                before = self._row_of.get(entry.id)
                if before is not None:
                    self._gone.append(before)
            if entry.put:
                self._ids.append(entry.id)
                self._row_of[entry.id] = len(self._ids) - 1
            elif entry.delete:
                self._row_of.pop(entry.id, None)
                self.attributes.pop(entry.id, None)
            if entry.attributes is not None:
                self.attributes[entry.id] = entry.attributes
                for name, value in entry.attributes.items():
                    self.kinds.setdefault(name, kind_of(value))

    def _show(self) -> None:
        """Show what was taken in, all of it at once."""
        count = len(self._ids)
        if count != self.shown.rows or self._changes:
            self.shown = self.shown.after(count, self._gone, self._changes, self._attributed)
            self._gone, self._changes, self._attributed = [], 0, 0

    def _know_sets(self, sets: Sequence[ItemSet]) -> None:
        """Look up the elements of these sets, whose items are known. Whoever reads goes on with the mapping it has."""
        if not sets:
            return
        rows = self.rows([item for item_set in sets for item in item_set.items])
        if rows.min(initial=0) < 0:
            raise CatalogueError(f"catalogue {self.where}: a set names an item that is not there: build it again")
        rows.flags.writeable = False
        ends = np.cumsum([len(item_set.items) for item_set in sets])
        added = {item_set.set: rows[end - len(item_set.items) : end] for item_set, end in zip(sets, ends, strict=True)}
        self.sets = {**self.sets, **added}
