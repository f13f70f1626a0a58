"""The contract of an index in a vector database that ``omdml sync`` keeps current.

An index has two sides. Readers see the *live* side. Writes go to the *draft*, which readers never see. ``switch`` makes
the draft live in one step. A reader therefore has rows of one version in one answer, whatever is written or killed
meanwhile: what a killed writer leaves is a draft that the next one completes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.errors import ConfigurationError, OmdmlError

Attributes = list[dict[str, Any]]


class IndexAway(OmdmlError):
    """A vector database that cannot be reached, or that failed in the middle: trying again may help."""

    reason = "index_away"


class IndexRefused(OmdmlError):
    """A vector database that does not do what is asked: an operator must correct something, as the message says."""

    reason = "index_refused"
    needs_operator = True


class IndexMoved(OmdmlError):
    """Readers of an index see something else now than what was asked for."""

    reason = "index_moved"


class Indexed(msgspec.Struct, frozen=True, kw_only=True):
    """What the live side of an index stands for.

    Its ``items`` lie within ``bound`` of where ``version`` of ``model`` (and ``task``) embeds them, after a rotation of
    the whole that changes no distance; each has ``width`` numbers. ``moved`` is the bound as a share of the items' root
    mean square distance from their mean. ``serial``, ``digest`` and ``generation`` are the snapshot's. The items are
    those of the catalogue's first ``rows`` rows: what has a later row came afterwards. ``rows`` is None if that is not
    known. ``places`` is a digest of the rows that the items have in the catalogue: an item that is put again has
    another one.
    """

    model: str
    task: str | None
    version: int
    serial: int
    digest: str
    generation: str
    items: int
    width: int
    moved: float
    bound: float
    # Indexes of earlier releases lack these two.
    rows: int | None = None
    places: str = ""

    def stands_for(self, other: Indexed) -> bool:
        """Whether the items, as they are, are within the other's bound too: it is of the same metric and items."""
        same = all(getattr(self, name) == getattr(other, name) for name in ("digest", "generation", "places", "width"))
        return same and self.places != "" and self.moved <= other.moved


class Compared(NamedTuple):
    """What one attribute of an item must be: ``operator`` holds for one of ``values``, which are of one type.

    ``eq``, ``lt``, ``lte``, ``gt`` and ``gte`` compare a number, text or truth value, texts by their code points.
    ``has`` is about a list of texts. ``exists`` has no values: the item has the attribute. None of them holds if the
    item lacks the attribute, or if that is of another type.
    """

    name: str
    operator: str
    values: tuple[float | str | bool, ...] = ()


class Joined(NamedTuple):
    """Conditions of which ``all`` hold, or ``any``; ``not`` has one part, which does not hold."""

    word: str
    parts: tuple[Condition, ...]


Condition = Compared | Joined


class PushedFilter(NamedTuple):
    """What an index can apply of a filter: every item that matches the filter meets this condition.

    ``whole`` says that no other item does.
    """

    condition: Condition
    whole: bool


class IndexRows(NamedTuple):
    """Rows of an index: ids (n), embedding float32 (n, width), and attributes (n), empty ones for items without any."""

    ids: Sequence[str]
    embedding: NDArray[np.float32]
    attributes: Attributes

    def chosen(self, places: NDArray[np.int64]) -> IndexRows:
        """Only the rows at these places."""
        ids, attributes = self.ids, self.attributes
        return IndexRows(
            [ids[place] for place in places], self.embedding[places], [attributes[place] for place in places]
        )


def no_rows(width: int) -> IndexRows:
    """A side without rows, of this width."""
    return IndexRows([], np.empty((0, width), np.float32), [])


class VectorIndex(Protocol):
    """An index of one name in a vector database, written by one process at a time.

    Every method raises IndexAway if the database is away and IndexRefused if it refuses; after either, what was
    committed stays, and the next call connects again. ``str(index)`` says in messages which index it is.

    deploy/VECTORS.md says how to add one for another database.
    """

    # Whether the draft is, after a switch, what was live before it; otherwise it is what is live now.
    alternating: bool = False

    @abstractmethod
    def live(self) -> tuple[Indexed, IndexRows] | None:
        """What readers see; None if nothing was ever switched to."""

    @abstractmethod
    def draft(self, width: int) -> IndexRows:
        """What the draft holds now, ready to take rows of this width.

        It may be an older version, or one that a killed writer left unfinished. It is empty if there was none, or if it
        had another width.
        """

    def prepare(self, changes: int, total: int) -> None:
        """Hear how many of the draft's ``total`` rows will be written, before the first of them is.

        A backend may drop its search structure if building it again costs less than this many changes.
        """

    @abstractmethod
    def write(self, rows: IndexRows) -> None:
        """Put rows into the draft, over those of the same ids, and commit them."""

    @abstractmethod
    def remove(self, ids: Sequence[str]) -> None:
        """Take rows out of the draft, and commit that; ids that are not there are passed over."""

    @abstractmethod
    def switch(self, indexed: Indexed) -> None:
        """Make the draft live as ``indexed``, in one step, with its search structure built."""

    @abstractmethod
    def keep(self, indexed: Indexed) -> None:
        """Note that the live side, as it is, stands for ``indexed`` too, in one step; the draft may be lost."""

    def close(self) -> None:
        """Release the lock, so that others can write."""

    def reader(self) -> IndexReader:
        """A reader for one thread, which needs no lock. An index that has none is of no use to nodes.

        Raises ConfigurationError.
        """
        raise ConfigurationError(
            f"{self}: nodes cannot take candidates from this kind of index: its class has no method reader()"
        )


class IndexReader(Protocol):
    """Reads the live side of an index, for a node that takes candidates from it. One thread at a time uses it.

    Methods raise IndexAway and IndexRefused as those of :class:`VectorIndex` do, and IndexMoved if the live side no
    longer stands for what the caller names: it then asks what it stands for now.
    """

    @abstractmethod
    def live(self) -> Indexed | None:
        """What readers see now; None if nothing was ever switched to."""

    @abstractmethod
    def places(self, indexed: Indexed, ids: Sequence[str]) -> tuple[Sequence[str], NDArray[np.float32]]:
        """The ids among these that the index has, in any order, and their vectors (n, width)."""

    @abstractmethod
    def nearest(self, indexed: Indexed, point: NDArray[np.float32], count: int) -> Sequence[str]:
        """At most ``count`` ids, the nearest to a point (width,), in any order."""

    def nearest_among(
        self, indexed: Indexed, point: NDArray[np.float32], count: int, condition: Condition
    ) -> Sequence[str] | None:
        """As :meth:`nearest`, among the items whose attributes, as the index has them, meet a condition.

        None if this index cannot express the condition: the caller then asks for more of all items.
        """
        return None

    def close(self) -> None:
        """Let the connection go. The object is not used again."""
        return
