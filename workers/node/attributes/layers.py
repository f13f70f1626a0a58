"""The attributes of a model's items: what changes of the items said, over a file."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

from omdml.streams.protocols.catalogue import Catalogue
from omdml.workers.node.attributes.columns import Mask
from omdml.workers.node.attributes.table import Attributes, Columns

NO_FILE = Attributes((), "")


class Layers(NamedTuple):
    """An item that a change gave attributes has these and no others; every other item has those of the file."""

    file: Attributes
    changed: Attributes

    @property
    def columns(self) -> Columns:
        """All attributes by name, of which only the names count."""
        return {**self.changed.columns, **self.file.columns}

    def mask(self, asked: Any, catalogue: Catalogue, count: int) -> Mask:
        """Which of a catalogue's first rows match a filter (count,); raises SearchError."""
        found = self.file.mask(asked, catalogue, count, self.changed.columns)
        if self.changed.ids:
            rows = catalogue.rows(self.changed.ids)
            known = (rows >= 0) & (rows < count)
            found = found.copy()
            found[rows[known]] = self.changed.own_mask(asked, self.file.columns)[known]
        return found

    def of(self, items: Iterable[str], names: Iterable[str]) -> list[dict[str, Any]]:
        """The values of each item, as far as it has them; raises SearchError for an unknown attribute."""
        items, names = list(items), list(names)
        here = self.changed.of(items, names, self.file.columns)
        there = self.file.of(items, names, self.changed.columns)
        return [mine if self.changed.has(item) else filed for item, mine, filed in zip(items, here, there, strict=True)]


def layered(file: Attributes | None, changed: Attributes) -> Layers | None:
    """What is known of the items; None if nothing is."""
    return None if file is None and not changed.ids else Layers(file or NO_FILE, changed)


class ChangedAttributes:
    """What changes said of the items of each catalogue, made again when it is asked for after a change.

    That takes some microseconds for each item that a change ever gave attributes. Any number of threads may ask.
    """

    def __init__(self) -> None:
        self._made: weakref.WeakKeyDictionary[Catalogue, tuple[int, Attributes]] = weakref.WeakKeyDictionary()
        self._making = threading.Lock()

    def of(self, catalogue: Catalogue) -> Attributes:
        """Those of all items of a catalogue."""
        with self._making:
            known, made = self._made.get(catalogue, (0, NO_FILE))
            # Asked first: what comes in meanwhile is taken in the next time at the latest.
            newest = catalogue.shown.attributed
            if known != newest:
                made = Attributes.of_items(dict(catalogue.attributes).items())
                self._made[catalogue] = newest, made
            return made
