"""What people clicked in interleaved answers, and which of the two rankings that speaks for."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import structlog

from omdml.errors import ConfigurationError
from omdml.retrieval.interleaving import Drafted
from omdml.streams.bounded_files import read_regular
from omdml.streams.disk import put

# Searches whose teams are remembered, the newest; clicks on older ones count for nothing.
REMEMBERED = 10_000
# Items of all these searches together, about 100 MB: one search may ask for ten thousand.
REMEMBERED_ITEMS = 4_000_000
# The largest file of counts, in bytes.
COUNTS_BYTES = 1 << 16
# Seconds between two writes of the counts.
WRITE_EVERY_S = 5.0

log = structlog.get_logger(__name__)


class Counts(msgspec.Struct):
    """Counts of one experiment since ``since`` (seconds since the epoch).

    ``failed`` counts searches that the model answered alone, because the other side could not answer. Of the searches
    with clicks, the model's own ranking won ``first``, the other one ``second``, and neither won ``ties``.
    """

    since: float = 0.0
    searches: int = 0
    failed: int = 0
    first: int = 0
    second: int = 0
    ties: int = 0
    clicks: tuple[int, int] = (0, 0)


class ShownSearch(msgspec.Struct):
    """One search: which team brought each item, and which items were clicked."""

    teams: dict[str, int]
    clicked: set[str] = msgspec.field(default_factory=set)

    @property
    def outcome(self) -> str:
        """The count that this search is part of; empty without a click."""
        if not self.clicked:
            return ""
        second = sum(self.teams[item] for item in self.clicked)
        first = len(self.clicked) - second
        return "first" if first > second else "second" if second > first else "ties"


class ExperimentTally:
    """The counts of one experiment. Any number of threads may use it.

    Parameters
    ----------
    path
        The file that keeps the counts; None keeps them in memory only.

    Raises ConfigurationError if there is a file that holds no counts, or cannot be read.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._changing = threading.Lock()
        self._searches: OrderedDict[str, ShownSearch] = OrderedDict()
        self._items = 0
        self.counts: Counts = (path and _read(path)) or Counts(since=time.time())
        self._written_at = 0.0

    def failed(self) -> None:
        """Count a search that only one side could answer."""
        with self._changing:
            self.counts.failed += 1

    def shown(self, search: str, drafted: Iterable[Drafted]) -> None:
        """Remember an answer. If the same search comes again, because a page is reloaded, its new items are added."""
        with self._changing:
            remembered = self._searches.pop(search, None)
            if remembered is None:
                remembered = ShownSearch({})
                self.counts.searches += 1
            self._searches[search] = remembered
            self._items -= len(remembered.teams)
            for item, team in drafted:
                remembered.teams.setdefault(item, team)
            self._items += len(remembered.teams)
            while len(self._searches) > REMEMBERED or self._items > REMEMBERED_ITEMS:
                _, oldest = self._searches.popitem(last=False)
                self._items -= len(oldest.teams)

    def clicked(self, search: str, items: Sequence[str]) -> int | None:
        """Count clicks on items of an answer, each item once; returns how many were new, None for an unknown search."""
        with self._changing:
            remembered = self._searches.get(search)
            if remembered is None:
                return None
            before, clicks = remembered.outcome, list(self.counts.clicks)
            new = [item for item in dict.fromkeys(items) if item in remembered.teams and item not in remembered.clicked]
            for item in new:
                remembered.clicked.add(item)
                clicks[remembered.teams[item]] += 1
            self.counts.clicks = clicks[0], clicks[1]
            for outcome, change in ((before, -1), (remembered.outcome, 1)):
                if outcome:
                    setattr(self.counts, outcome, getattr(self.counts, outcome) + change)
            return len(new)

    def write_if_due(self) -> None:
        """Write the counts if they were not written lately."""
        if time.monotonic() - self._written_at >= WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        """Write the counts if they are kept. If that fails, the log says so."""
        if self._path is None:
            return
        with self._changing:
            data, self._written_at = msgspec.json.encode(self.counts), time.monotonic()
        try:
            put(self._path, data)
        except OSError as error:
            log.error("counts_not_written", path=str(self._path), error=error.strerror, action="they stay in memory")


def _read(path: Path) -> Counts | None:
    """The counts in a file; None if there is none yet."""
    if not path.parent.is_dir():
        raise ConfigurationError(
            f"experiments: counts should be kept in {path}, but {path.parent} is not a folder: make it"
        )
    try:
        return msgspec.json.decode(read_regular(path, COUNTS_BYTES), type=Counts)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        message = f"experiments: {path} holds no counts ({error}): move it away, and they begin again"
        raise ConfigurationError(message) from error
