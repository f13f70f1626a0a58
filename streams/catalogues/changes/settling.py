"""Decides which of the changes that several requests ask for can be made to a catalogue as it is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from omdml.streams.catalogues.changes.change import (
    BUILD_AGAIN,
    KINDS,
    MAX_ATTRIBUTES,
    Changed,
    ChangeEntry,
    ChangeError,
    Prepared,
    Value,
    kind_of,
)


class KnownItems(Protocol):
    """What a catalogue knows of its items."""

    where: str

    @property
    def kinds(self) -> Mapping[str, type]:
        """The kind of the values of each attribute."""

    @property
    def sets(self) -> Mapping[str, NDArray[np.int64]]:
        """Row numbers of a set's elements by its id."""

    def __contains__(self, item: object) -> bool:
        """Whether there is an item of this id."""

    def in_sets(self, item: str) -> bool:
        """Whether the item of this id is an element of a set."""


class SettledChanges:
    """The changes that will be made together: those of each request whole, or not at all.

    Attributes
    ----------
    entries, vectors
        What is to be kept, in order; a row for each entry that puts.
    results
        What becomes of each request, without its position.
    """

    def __init__(self, known: KnownItems, batches: Sequence[Prepared]) -> None:
        self._known = known
        self._there: dict[str, bool] = {}
        self._kinds: dict[str, type] = dict(known.kinds)
        self.entries: list[ChangeEntry] = []
        self.results: list[Changed | ChangeError] = []
        accepted = []
        for batch in batches:
            there, kinds, count = dict(self._there) if len(batches) > 1 else {}, dict(self._kinds), len(self.entries)
            try:
                self.results.append(self._take(batch))
                accepted.append(batch)
            except ChangeError as error:
                self._there, self._kinds = there, kinds
                del self.entries[count:]
                self.results.append(error)
        with_rows = [batch.vectors for batch in accepted if batch.vectors]
        names = with_rows[0] if with_rows else {}
        self.vectors = {name: np.concatenate([vectors[name] for vectors in with_rows]) for name in names}

    def _take(self, batch: Prepared) -> Changed:
        put = attributes = deleted = 0
        unknown = []
        for entry in batch.entries:
            exists = self._there.get(entry.id, entry.id in self._known)
            if entry.delete and not exists:
                unknown.append(entry.id)
                continue
            self._check(entry, exists)
            self._there[entry.id] = not entry.delete
            self.entries.append(entry)
            put += entry.put
            deleted += entry.delete
            attributes += not entry.put and not entry.delete
        return Changed(0, put, attributes, deleted, unknown)

    def _check(self, entry: ChangeEntry, exists: bool) -> None:
        where = f"item {entry.id!r}"
        if entry.id in self._known.sets:
            raise ChangeError(f"{where} is named like a set of catalogue {self._known.where}: give it another id")
        if (entry.put or entry.delete) and exists and self._known.in_sets(entry.id):
            raise ChangeError(
                f"{where} is an element of a set, and sets do not change: build catalogue {self._known.where} again "
                "without it (omdml catalogue build --replace)",
                "set_element",
            )
        if not entry.put and not exists:
            raise ChangeError(f"{where} is not in catalogue {self._known.where}: put it with features", "unknown_item")
        for name, value in (entry.attributes or {}).items():
            self._check_kind(name, value, where)

    def _check_kind(self, name: str, value: Value, where: str) -> None:
        kind = self._kinds.setdefault(name, kind_of(value))
        if kind is not kind_of(value):
            raise ChangeError(
                f"{where}: attribute {name} is {value!r:.80}, expected {KINDS[kind]}, as others have. "
                f"For another kind, {BUILD_AGAIN}"
            )
        if len(self._kinds) > MAX_ATTRIBUTES:
            raise ChangeError(
                f"{where}: more than {MAX_ATTRIBUTES} attributes in the catalogue: leave out what nobody filters by",
                "oversize",
            )
