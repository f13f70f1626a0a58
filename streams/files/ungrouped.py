"""A log in files, read beside the groups that follow it: no lock, no committed position."""

from __future__ import annotations

from pathlib import Path

from omdml.errors import SourceError
from streams.files.group_state import Books, Committed
from streams.files.source import FileSource


class FileBystander(FileSource):
    """Reads from where its listener says; any number may at the same time, and their commits are forgotten.

    Raises SourceError where there is no such log.
    """

    def __init__(self, path: str | Path) -> None:
        if not Path(path).exists():
            raise SourceError(f"feedback log {path}: not there, expected a folder of segments or a file of JSON lines")
        super().__init__(path)
        self._books = NoBooks(self.log, "")


class NoBooks(Books):
    """The books of a reader that has none."""

    def lock(self) -> None:
        """Nobody is kept away."""

    def unlock(self) -> None:
        """Nobody was."""

    def read(self) -> Committed | None:
        """Nothing ever was committed."""
        return None

    def write(self, committed: Committed) -> None:
        """Nothing ever is."""
