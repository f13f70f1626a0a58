"""What the demo shows: items with pictures, whatever they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Collection(Protocol):
    """Items, what each is, and how they become a catalogue.

    ``name`` is that of the catalogue and of the model; ``labels`` say what each item is to people.
    """

    @property
    def name(self) -> str:
        """Of the catalogue and of the model, in the plural."""

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all items."""

    @property
    def labels(self) -> Sequence[str]:
        """What each item is to people."""

    def with_sets(self, sets: Mapping[str, Sequence[str]]) -> Collection:
        """The same items with sets of them, item ids by set id."""

    def build(self, target: Path) -> None:
        """Make the catalogue in this folder."""

    def write_pictures(self, folder: Path) -> None:
        """Make this folder, with a file ``ID.png`` of each item."""

    def write_attributes(self, path: Path) -> None:
        """Write the attributes of each item, as nodes read them."""
