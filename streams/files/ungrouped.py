"""Reads a log in files without a group: it takes no lock and commits no position."""

from __future__ import annotations

from pathlib import Path

from omdml.errors import SourceError
from omdml.streams.files.group_state import Committed, GroupState
from omdml.streams.files.source import FileSource


class UngroupedFileSource(FileSource):
    """Reads from where its listener says. Any number may read at the same time, and their commits are ignored.

    Raises SourceError if there is no such log.
    """

    def __init__(self, path: str | Path) -> None:
        if not Path(path).exists():
            raise SourceError(
                f"feedback log {path}: it does not exist, expected a folder of segments or a file of JSON lines"
            )
        super().__init__(path)
        self._group_state = NoGroupState(self.log, "")


class NoGroupState(GroupState):
    """The state of a reader without a group: it stores nothing."""

    def lock(self) -> None:
        """Take no lock: a reader without a group excludes nobody."""

    def unlock(self) -> None:
        """Do nothing, because no lock was taken."""

    def read(self) -> Committed | None:
        """None, because nothing is ever committed."""
        return None

    def write(self, committed: Committed) -> None:
        """Write nothing: commits of this reader are ignored."""
