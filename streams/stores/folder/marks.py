"""Marks, placements and the secret: what a store in a folder keeps beside its models."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from omdml.streams.bounded_files import DOCUMENT_BYTES, read_regular
from omdml.streams.disk import put, put_if_absent
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Marks
from omdml.streams.stores.checkpoints import new_secret, read_secret
from omdml.streams.stores.folder.layout import MAX_NUMBER_BYTES, DirectoryLayout, read_number


class DirectoryMarks(DirectoryLayout):
    """Watermarks, placements and the secret in a folder."""

    def marks(self, partitions: Iterable[Partition]) -> Marks:
        """The offset below which everything is in checkpoints; a copy of the folder is another run."""
        with self._reaching():
            if not self._is_there():
                return Marks({}, "")
            # Before the marks: an owner that reads the mark of before a replacement must not know of it.
            replacements = self._count_replacements()
            run = f"{self.store_id} {(self.path / 'store-id').stat().st_ctime_ns}"
            paths = {partition: self._mark(partition) for partition in partitions}
            offsets = {place: read_mark(path) for place, path in paths.items() if path.exists()}
            return Marks(offsets, run, replacements)

    def _count_replacements(self) -> int:
        path = self.path / "replacements"
        return read_number(path, "a number: write 0 into it") if path.exists() else 0

    def read_again(self, partition: Partition, offset: int) -> None:
        """Have the owner of a partition begin again, at this offset or below."""
        with self._reaching():
            path = self._mark(partition)
            if path.exists() and read_mark(path) > offset:
                put(path, b"%d\n" % offset)
            put(self.path / "replacements", b"%d\n" % (self._count_replacements() + 1))

    def move_mark(self, partition: Partition, before: int | None, offset: int, replacements: int | None = None) -> bool:
        """Set a mark, if it is as expected: a look and a write. A lock would have a process that sleeps in between keep
        all others from moving marks."""
        with self._reaching():
            path = self._mark(partition)
            as_expected = (read_mark(path) if path.exists() else None) in (before, offset)
            as_expected = as_expected and replacements in (None, self._count_replacements())
            if as_expected:
                self.make()
                put(path, b"%d\n" % offset)
            return as_expected

    def placement(self, topic_id: str) -> Placement | None:
        """The placement of a log's models; None before the first worker recorded it."""
        with self._reaching():
            path = self._placement(topic_id)
            return Placement.decode(read_regular(path, DOCUMENT_BYTES), str(path)) if path.exists() else None

    def place(self, topic_id: str, before: Placement | None, after: Placement) -> bool:
        """Record a placement, if it is as expected.

        Of several first workers one makes the file. Afterwards a look and a write will do: only operators change it.
        """
        with self._reaching():
            self.make()
            if before is None and put_if_absent(self._placement(topic_id), after.encode(), self._placements):
                return True
            as_expected = self.placement(topic_id) in (before, after)
            if as_expected:
                put(self._placement(topic_id), after.encode())
            return as_expected

    def secret(self) -> bytes:
        """The secret, which is created if it does not exist yet."""
        if secret := self.kept_secret():
            return secret
        path = self.path / "secret"
        with self._reaching():
            self.make()
            put_if_absent(path, new_secret(), self.path, mode=0o600)
            return read_secret(read_regular(path, MAX_NUMBER_BYTES), str(path))

    def kept_secret(self) -> bytes | None:
        """The secret; None if it does not exist yet."""
        path = self.path / "secret"
        with self._reaching(), suppress(FileNotFoundError):
            return read_secret(read_regular(path, MAX_NUMBER_BYTES), str(path))
        return None


def read_mark(path: Path) -> int:
    """The offset in this file; raises StoreError if it is damaged."""
    return read_number(path, "an offset: write the one to replay from into it")
