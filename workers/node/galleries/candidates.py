"""The index in a vector database that proposes candidates to a node; ``omdml sync`` keeps it current."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import msgspec
import numpy as np
import structlog
from numpy.typing import NDArray

from omdml.errors import OmdmlError
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.index import (
    Condition,
    IndexAway,
    Indexed,
    IndexMoved,
    IndexReader,
    IndexRefused,
    VectorIndex,
)

# Seconds between two looks at which version readers see.
LOOK_S = 1.0
# How often a search, or a look, is tried if the index is switched in the middle of it.
TRIES = 3
# Items whose place in the index is known here: at least this many, and this many for each coordinate.
SAMPLE, SAMPLE_PER_COORDINATE = 1_000, 2

log = structlog.get_logger(__name__)


class Held(NamedTuple):
    """What an index holds, and where some of its items lie in it: their ids (m), and their places (m, width)."""

    indexed: Indexed
    ids: Sequence[str]
    places: NDArray[np.float32]


class CandidateIndex:
    """The index that one model's candidates come from. Any number of threads may search.

    A thread looks every second which version readers see. While an index cannot be read, it answers no search; the
    thread goes on trying.

    Parameters
    ----------
    model
        The model whose items must be in it.
    catalogue
        The model's catalogue, whose items say what to ask for.
    index
        The index, of which only readers are used.
    """

    def __init__(self, model: str, catalogue: Callable[[], Catalogue], index: VectorIndex) -> None:
        self._model, self._catalogue, self._index = model, catalogue, index
        self._held: Held | None = None
        # Why it could not be read at the last look; empty if it could be.
        self.away = "it was not read yet"
        self._looking, self._stop = threading.Lock(), threading.Event()
        self._idle: list[IndexReader] = []
        self._thread = threading.Thread(target=self._follow, name="omdml-candidates", daemon=True)

    def __str__(self) -> str:
        return str(self._index)

    @property
    def read(self) -> bool:
        """Whether it could be read once, so that the model can answer."""
        return self._held is not None

    @property
    def version(self) -> int | None:
        """The version that readers saw at the last look; None if there was none."""
        return self._held.indexed.version if self._held else None

    @property
    def tag(self) -> int:
        """A number that changes with what readers see."""
        return zlib.crc32(msgspec.json.encode(self._held.indexed)) if self._held else 0

    def start(self) -> None:
        """Look at the index, and begin to follow it."""
        self._look_again()
        self._thread.start()

    def close(self) -> None:
        """Stop following, and let the connections go."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._close_idle()

    def held(self) -> Held:
        """What the index holds, as it was seen last; raises IndexAway if it was never seen."""
        if self._held is None:
            raise IndexAway(self.away)
        return self._held

    def look(self) -> Held:
        """What the index holds now; raises IndexAway or IndexRefused."""
        with self._looking:
            for _ in range(TRIES):
                with suppress(IndexMoved), self._reader() as reader:
                    held = self._held = self._seen(reader)
                    self.away = ""
                    return held
        raise IndexAway(f"{self} was switched {TRIES} times while it was read")

    def nearest(self, held: Held, point: NDArray[np.float32], count: int) -> Sequence[str]:
        """Ids near a point. Raises IndexMoved if readers see something else now; IndexAway, IndexRefused."""
        with self._searched() as reader:
            return reader.nearest(held.indexed, point, count)

    def nearest_among(
        self, held: Held, point: NDArray[np.float32], count: int, condition: Condition
    ) -> Sequence[str] | None:
        """The same among the items that meet a condition; None if this kind of index cannot apply it."""
        with self._searched() as reader:
            return reader.nearest_among(held.indexed, point, count, condition)

    @contextmanager
    def _searched(self) -> Iterator[IndexReader]:
        if self.away:
            # Searches of other models wait for the same threads, so none may wait for a database that does not answer.
            raise IndexAway(self.away)
        with self._reader() as reader:
            yield reader

    def _seen(self, reader: IndexReader) -> Held:
        """What this reader sees; raises IndexMoved if that changes meanwhile."""
        indexed = reader.live()
        if indexed is None:
            raise IndexAway(f"{self}: readers have no version yet: run omdml sync {self._model}")
        # If the index was removed and synced again, it may stand for the same version with other coordinates. It was
        # away in between, so what is held is read again.
        if self._held and not self.away and self._held.indexed == indexed:
            return self._held
        catalogue = self._catalogue()
        self._check(indexed, catalogue)
        names = sample(catalogue.ids, indexed)
        ids, places = reader.places(indexed, names)
        rows = catalogue.rows(names)
        if not ids and ((rows >= 0) & (rows < (indexed.rows or 0))).any():
            # No query can be placed among items that are not there.
            raise IndexAway(
                f"{self} lost its items: it has none of {len(names):,} that were written to it. Stop omdml sync, and "
                "run it again: it compares all items when it starts"
            )
        return Held(indexed, ids, places)

    def _check(self, indexed: Indexed, catalogue: Catalogue) -> None:
        if indexed.model != self._model or indexed.task is not None:
            raise IndexRefused(
                f"{self} holds model {indexed.model!r}, task {indexed.task}, not model {self._model!r}: give the "
                "address of this model's index"
            )
        if indexed.generation != catalogue.generation:
            raise IndexAway(
                f"{self} holds generation {indexed.generation[:12]} of the catalogue, and this node has "
                f"{catalogue.generation[:12]}: run omdml sync {self._model}"
            )
        if indexed.rows is None:
            raise IndexRefused(
                f"{self} was written by an older omdml sync: run omdml sync {self._model} of this release"
            )

    @contextmanager
    def _reader(self) -> Iterator[IndexReader]:
        """A reader that no other thread uses meanwhile."""
        try:
            reader = self._idle.pop()
        except IndexError:
            reader = self._index.reader()
        try:
            yield reader
        except IndexMoved:
            self._idle.append(reader)
            raise
        except BaseException:
            # The connections of the other readers are probably lost, too.
            reader.close()
            self._close_idle()
            raise
        self._idle.append(reader)

    def _close_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()

    def _follow(self) -> None:
        while not self._stop.wait(LOOK_S):
            self._look_again()

    def _look_again(self) -> None:
        """Look, and log if that became impossible or possible."""
        before = self.away
        try:
            self.look()
        except OmdmlError as error:
            self.away = str(error)
        if self.away and self.away != before:
            action = "searches of this model are refused until it can be read; trying again"
            log.warning("index_away", model=self._model, index=str(self), reason=self.away, action=action)
        if before and not self.away:
            log.info("index_read", model=self._model, index=str(self), version=self.version)


def sample(ids: Sequence[str], indexed: Indexed) -> list[str]:
    """Some ids of a catalogue, always the same ones."""
    count = max(SAMPLE, SAMPLE_PER_COORDINATE * indexed.width)
    rows_in_index = min(len(ids), indexed.rows or 0)
    rows = np.random.default_rng(0).choice(rows_in_index, min(count, rows_in_index), replace=False)
    return [ids[row] for row in np.sort(rows).tolist()]


# The indexes of a node that holds all items of its models.
NO_CANDIDATES: Mapping[str, CandidateIndex] = {}
