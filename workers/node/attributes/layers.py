"""The attributes of a model's items: those of a file, and above them those that the build and later changes set.

A change must not cost as much as reading all attributes again. So changes lie in layers. Each new layer holds what
changed since the last look. A layer that is no longer small beside the one below it is merged with that one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from omdml.streams.catalogues.changes.change import Value
from omdml.streams.protocols.catalogue import Catalogue
from omdml.workers.node.attributes.columns import Mask, Texts
from omdml.workers.node.attributes.table import Attributes, Columns

NO_FILE = Attributes((), "")
# A layer is merged with the one below it if it holds more than 1 / GROWTH of that one's items.
GROWTH = 8
# The items of a layer are looked up one by one if they are fewer than 1 / FEW of the catalogue's.
FEW = 8


class Layers(NamedTuple):
    """If a change gave an item attributes, the item has these and no others; every other item has those of the file.

    If several layers of ``changed`` name an item, the last of them counts, because it is the newest. Items in
    ``forgotten`` have the attributes of the file again, whatever the layers hold.
    """

    file: Attributes
    changed: Sequence[Attributes]
    forgotten: frozenset[str] = frozenset()

    @property
    def columns(self) -> Columns:
        """All attributes by name. Only names and kinds count; if one layer has texts and another dates, it is texts."""
        merged: dict[str, Any] = {}
        for layer in (*reversed(self.changed), self.file):
            columns: dict[str, Any] = dict(layer.columns)
            for name, column in columns.items():
                if name not in merged or isinstance(column, Texts):
                    merged[name] = column
        return merged

    def mask(self, asked: Any, catalogue: Catalogue, count: int) -> Mask:
        """Which of a catalogue's first rows match a filter (count,); raises SearchError."""
        columns = self.columns
        file_mask = self.file.mask(asked, catalogue, count, columns)
        matching = file_mask.copy() if self.changed else file_mask
        for layer in self.changed:
            if FEW * layer.count < count:
                rows = catalogue.rows(layer.ids)
                in_view = (rows >= 0) & (rows < count)
                matching[rows[in_view]] = layer.own_mask(asked, columns)[in_view]
            else:
                covered = layer.covers(catalogue, count)
                matching[covered] = layer.mask(asked, catalogue, count, columns)[covered]
        if self.forgotten:
            rows = catalogue.rows(list(self.forgotten))
            rows = rows[(rows >= 0) & (rows < count)]
            matching[rows] = file_mask[rows]
        return matching

    def of(self, items: Iterable[str], names: Iterable[str]) -> list[dict[str, Any]]:
        """The values of each item, as far as it has them; raises SearchError for an unknown attribute."""
        items, names, columns = list(items), list(names), self.columns
        values_of = self.file.of(items, names, columns)
        for layer in self.changed:
            places = [place for place, item in enumerate(items) if layer.has(item) and item not in self.forgotten]
            values = layer.of([items[place] for place in places], names, columns)
            for place, value in zip(places, values, strict=True):
                values_of[place] = value
        return values_of


class _ChangedSoFar(NamedTuple):
    """The attributes that changes had set at one moment; ``attributed`` counts the changes until then."""

    attributed: int = 0
    layers: tuple[Attributes, ...] = ()
    forgotten: frozenset[str] = frozenset()

    def after(self, attributed: int, catalogue: Catalogue) -> _ChangedSoFar:
        """The same after more changes."""
        current, changed = catalogue.attributes, catalogue.attributed_since(self.attributed)
        if changed is None:
            all_values = dict(current)
            return _ChangedSoFar(attributed, (Attributes.of_items(all_values.items()),) if all_values else ())
        new, layers = _values(changed, current), list(self.layers)
        forgotten = (self.forgotten | changed) - new.keys()
        while layers and layers[-1].count < GROWTH * len(new):
            new = {**_values(layers.pop().ids, current), **new}
        if new:
            layers.append(Attributes.of_items(new.items()))
        return _ChangedSoFar(attributed, tuple(layers), forgotten if layers else frozenset())


def _values(items: Iterable[str], now: Mapping[str, Mapping[str, Value]]) -> dict[str, Mapping[str, Value]]:
    """The current attributes of these items; items that have none are left out."""
    return {item: value for item in items if (value := now.get(item)) is not None}


class ChangedAttributes:
    """The attributes that changes set, for each catalogue. They are brought up to date when somebody asks for them.

    Any number of threads may ask.
    """

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Catalogue, _ChangedSoFar] = weakref.WeakKeyDictionary()
        self._making = threading.Lock()

    def over(self, file: Attributes | None, catalogue: Catalogue) -> Layers | None:
        """The attributes of the items of a catalogue; None if there are none."""
        with self._making:
            known = self._known.get(catalogue, _ChangedSoFar())
            # The count is read first, so that a change that comes meanwhile is taken in at the next call at the latest.
            newest = catalogue.shown.attributed
            if known.attributed != newest:
                known = self._known[catalogue] = known.after(newest, catalogue)
        if file is None and not known.layers:
            return None
        return Layers(file or NO_FILE, known.layers, known.forgotten)
