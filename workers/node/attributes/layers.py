"""The attributes of a model's items: what the build and changes of the items said, over a file.

A change must not cost as much as all attributes there are. So what changes said lies in layers: each new one holds
what changed since the last look, and one that is no longer small beside the layer below it is merged with that.
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
# A layer is merged with the one below it if it holds more than one part in this many of that one's items.
GROWTH = 8
# The items of a layer are looked up one by one if they are fewer than one part in this many of the catalogue's.
FEW = 8


class Layers(NamedTuple):
    """An item that a change gave attributes has these and no others; every other item has those of the file.

    The newest of the layers ``changed``, which is the last, says what an item has. Of the items that are ``forgotten``
    no change says anything any more, whatever the layers hold.
    """

    file: Attributes
    changed: Sequence[Attributes]
    forgotten: frozenset[str] = frozenset()

    @property
    def columns(self) -> Columns:
        """All attributes by name, of which only names and kinds count: one layer may have texts, another dates."""
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
        filed = self.file.mask(asked, catalogue, count, columns)
        matching = filed.copy() if self.changed else filed
        for layer in self.changed:
            if FEW * layer.count < count:
                rows = catalogue.rows(layer.ids)
                known = (rows >= 0) & (rows < count)
                matching[rows[known]] = layer.own_mask(asked, columns)[known]
            else:
                there = layer.covers(catalogue, count)
                matching[there] = layer.mask(asked, catalogue, count, columns)[there]
        if self.forgotten:
            rows = catalogue.rows(list(self.forgotten))
            rows = rows[(rows >= 0) & (rows < count)]
            matching[rows] = filed[rows]
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


class _Known(NamedTuple):
    """What changes said, at one moment; ``attributed`` counts the changes up to it."""

    attributed: int = 0
    layers: tuple[Attributes, ...] = ()
    forgotten: frozenset[str] = frozenset()

    def after(self, attributed: int, catalogue: Catalogue) -> _Known:
        """What is known after more changes."""
        now, changed = catalogue.attributes, catalogue.attributed_since(self.attributed)
        if changed is None:
            everything = dict(now)
            return _Known(attributed, (Attributes.of_items(everything.items()),) if everything else ())
        new, layers = _values(changed, now), list(self.layers)
        forgotten = (self.forgotten | changed) - new.keys()
        while layers and layers[-1].count < GROWTH * len(new):
            new = {**_values(layers.pop().ids, now), **new}
        if new:
            layers.append(Attributes.of_items(new.items()))
        return _Known(attributed, tuple(layers), forgotten if layers else frozenset())


def _values(items: Iterable[str], now: Mapping[str, Mapping[str, Value]]) -> dict[str, Mapping[str, Value]]:
    """What these items have now, without those that have nothing."""
    return {item: value for item in items if (value := now.get(item)) is not None}


class ChangedAttributes:
    """What changes said of the items of each catalogue, brought up to date when it is asked for after a change.

    Any number of threads may ask.
    """

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Catalogue, _Known] = weakref.WeakKeyDictionary()
        self._making = threading.Lock()

    def over(self, file: Attributes | None, catalogue: Catalogue) -> Layers | None:
        """What is known of the items of a catalogue; None if nothing is."""
        with self._making:
            known = self._known.get(catalogue, _Known())
            # Asked first: what comes in meanwhile is taken in the next time at the latest.
            newest = catalogue.shown.attributed
            if known.attributed != newest:
                known = self._known[catalogue] = known.after(newest, catalogue)
        if file is None and not known.layers:
            return None
        return Layers(file or NO_FILE, known.layers, known.forgotten)
