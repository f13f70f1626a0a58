"""A log in files, read beside the groups that follow it: no lock, no committed position."""

from __future__ import annotations

from pathlib import Path

from omdml.errors import SourceError
from omdml.streams.files.group_state import Committed, GroupState
from omdml.streams.files.source import FileSource


class FileBystander(FileSource):
    """Reads from where its listener says; any number may at the same time, and their commits are forgotten.

    Raises SourceError if there is no such log.
    """

    def __init__(self, path: str | Path) -> None:
        if not Path(path).exists():
            raise SourceError(f"feedback log {path}: not there, expected a folder of segments or a file of JSON lines")
        super().__init__(path)
        self._group_state = NoGroupState(self.log, "")


class NoGroupState(GroupState):
    """What a reader keeps that belongs to no group: nothing."""

    def lock(self) -> None:
        """Take no lock: a reader without a group excludes nobody."""

    def unlock(self) -> None:
        """Do nothing, because nobody was kept away."""

    def read(self) -> Committed | None:
        """None, because nothing was ever committed."""
        return None

    def write(self, committed: Committed) -> None:
        """Write nothing: this reader commits nothing."""
