"""The contract of catalogues: the vectors of items, and changes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from omdml.streams.catalogues.changes.change import Change, Changed, ChangeError, Prepared, ShownRows, Value

if TYPE_CHECKING:
    from omdml.streams.describers.describer import Describer
    from omdml.streams.describers.thumbnails import ThumbnailFiles


class Catalogue(Protocol):
    """The items' vectors, scaled already, and mapped if a model learns on that.

    Within a generation rows are only ever added. An item that changes gets a new row; its older rows, and those of
    deleted items, stay and are no items any more.
    """

    @property
    def dims(self) -> Mapping[str, int]:
        """How many numbers an item has in each modality of ``features``."""

    @property
    def raw_dims(self) -> Mapping[str, int]:
        """How many numbers an item has in each modality of raw vectors."""

    @property
    def generation(self) -> str:
        """The generation's name: two catalogues of one generation have the same scaling and dimensions."""

    @property
    def first(self) -> int:
        """How many items the generation began with. Learners' starts look at these rows alone.

        So items that are added later change no start.
        """

    @property
    def ids(self) -> Sequence[str]:
        """The id of every row, in the order of the rows. Rows that are no items any more keep their ids."""

    @property
    def sets(self) -> Mapping[str, NDArray[np.int64]]:
        """Row numbers of a set's elements by its id; empty if there are no sets. No set is named like an item."""

    @property
    def features(self) -> Mapping[str, NDArray[np.float32]]:
        """A matrix (n, d) for each modality, float32 and C-contiguous. Row i belongs to ``ids[i]``.

        A memory map will do.
        """

    def in_coordinates(self, coordinates: str) -> Catalogue:
        """The same items as models with ``coordinates = "features"``, or ``"mapped"``, see them.

        Raises CatalogueError if there is no map to make such coordinates.
        """

    @property
    def describer(self) -> Describer | None:
        """What describes pictures and texts; None if the catalogue was built from vectors alone.

        Raises CatalogueError if it is damaged, or needs a library that is not installed.
        """

    @property
    def pictures(self) -> ThumbnailFiles:
        """The thumbnails of the items, for those that have one."""

    @property
    def shown(self) -> ShownRows:
        """Which rows are items now; the others were replaced or deleted."""

    @property
    def attributes(self) -> Mapping[str, Mapping[str, Value]]:
        """The attributes of each item whose attributes a change has set."""

    def attributed_since(self, count: int) -> set[str] | None:
        """Items whose attributes may have changed since ``shown.attributed`` was ``count``.

        None if that is too long ago to tell.
        """

    @property
    def refreshed_at(self) -> float:
        """The monotonic time at which this process last looked for changes; 0 if it never did."""

    def rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Row numbers of these ids, the newest of each; -1 for one that is unknown or deleted."""

    def prepare(self, changes: Iterable[Change]) -> Prepared:
        """Changes of one request, ready to be made; raises ChangeError if its vectors or attributes do not fit."""

    def change(self, batches: Sequence[Prepared]) -> list[Changed | ChangeError]:
        """Make the changes of some requests, and return the outcome of each request.

        All changes of a request are made, or none of them. On return they are durable, and this object knows them;
        others learn of them by a ``refresh()``. Raises CatalogueError if none was made, or if it is unknown whether
        they were: repeating them is safe.
        """

    def scale(self, vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """Scale (and map) raw vectors, (n, d) for each modality, as the catalogue's own were.

        The result is a table as ``features`` is. Raises CatalogueError, which names a modality that is missing or
        unknown, has another dimension, or has a value that is not finite.
        """

    def scale_some(self, vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """Do the same for vectors of at least one modality: the others get their conditional means (MATHS 17)."""

    def refresh(self) -> int:
        """Take in what was added to the generation and changed since the last look. Return the number of new rows.

        Rows keep their numbers. Whoever reads meanwhile asks for ``rows`` first, and then for ``features``. Raises
        CatalogueError if the place can no longer tell, for example because it holds another generation now.
        """
