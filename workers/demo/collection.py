"""The items of the demo, which have pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Collection(Protocol):
    """Items, what each of them is to people, and how they become a catalogue."""

    @property
    def name(self) -> str:
        """The name of the catalogue and of the model, in the plural."""

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all items, in the order of the catalogue."""

    @property
    def labels(self) -> Sequence[str]:
        """What each item is to people, in the order of ``ids``."""

    @property
    def first_query(self) -> str:
        """The item that the console begins with: people see at once that some of its answers fit and some do not."""

    def with_sets(self, sets: Mapping[str, Sequence[str]]) -> Collection:
        """The same items, with sets of items; ``sets`` has the item ids of each set id."""

    def build(self, target: Path) -> None:
        """Make the catalogue in this folder."""

    def write_pictures(self, folder: Path) -> None:
        """Make this folder, with a file ``ID.png`` for each item."""

    def write_attributes(self, path: Path) -> None:
        """Write the attributes of each item, as nodes read them."""
