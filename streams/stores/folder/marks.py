"""Marks, placements and the secret: what a store in a folder keeps beside its models."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from omdml.errors import StoreError
from omdml.streams.bounded_files import DOCUMENT_BYTES, open_regular, read_regular
from omdml.streams.disk import locked, put, put_if_absent
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Marks
from omdml.streams.stores.checkpoints import new_secret, read_secret
from omdml.streams.stores.folder.layout import MAX_NUMBER_BYTES, DirectoryLayout, read_numbers

REPLACEMENTS = "replacements"


class Replacements(msgspec.Struct, frozen=True):
    """How often a checkpoint was replaced, or a mark moved from outside, and where partitions are read again for that.

    A mark says which replacement its owner knew of. If that is not the last one of its partition, the owner may have
    overwritten a mark that had been moved back. Such a mark counts only up to the offset that the replacement asks for.

    Parameters
    ----------
    again
        By the name of a mark: an offset, and the number of the replacement that came last.
    """

    count: int = 0
    again: dict[str, tuple[int, int]] = {}


class DirectoryMarks(DirectoryLayout):
    """Watermarks, placements and the secret in a folder."""

    def marks(self, partitions: Iterable[Partition]) -> Marks:
        """The offset below which everything is in checkpoints; a copy of the folder is another run."""
        with self._reaching():
            if not self._is_there():
                return Marks({}, "")
            # Before the marks: an owner that reads a mark from before a replacement must not know of the replacement.
            replacements = self._replacements()
            run = f"{self.store_id} {(self.path / 'store-id').stat().st_ctime_ns}"
            offsets = {place: self._offset(place, replacements) for place in partitions}
            set_offsets = {place: offset for place, offset in offsets.items() if offset is not None}
            return Marks(set_offsets, run, replacements.count)

    def _replacements(self) -> Replacements:
        path = self.path / REPLACEMENTS
        try:
            return msgspec.json.decode(read_regular(path, DOCUMENT_BYTES), type=Replacements)
        except FileNotFoundError:
            return Replacements()
        except msgspec.DecodeError as error:
            raise StoreError(
                f"{path}: {error}: stop the workers and remove it. If a command replaced a model (omdml replay "
                "--publish, forget, learn-on, bootstrap, topics rewind) and no worker has saved since, run it again"
            ) from error

    def _offset(self, partition: Partition, replacements: Replacements) -> int | None:
        path = self._mark(partition)
        if not path.exists():
            return None
        offset, known_replacements = read_mark(path)
        reread_from, number = replacements.again.get(path.name, (offset, 0))
        return offset if known_replacements >= number else min(offset, reread_from)

    def read_again(self, partition: Partition, offset: int) -> None:
        """Have the owner of a partition begin again, at this offset or below.

        One write says that and counts it. The lock is only for others who replace a checkpoint at the same time.
        """
        with self._reaching():
            self.make()
            lock = open_regular(self.path / "store-id", os.O_RDONLY)
            try:
                with locked(lock):
                    before, path = self._replacements(), self._mark(partition)
                    marked = self._offset(partition, before)
                    # The mark may be of a backup, and know of more replacements than this folder has seen.
                    counted_by_mark = read_mark(path)[1] if path.exists() else 0
                    count = max(before.count, counted_by_mark) + 1
                    again = {**before.again, path.name: (offset if marked is None else min(offset, marked), count)}
                    put(self.path / REPLACEMENTS, msgspec.json.encode(Replacements(count, again)))
            finally:
                os.close(lock)

    def move_mark(self, partition: Partition, before: int | None, offset: int, replacements: int | None = None) -> bool:
        """Set a mark, if it is as expected: a look and a write.

        There is no lock: a process that sleeps between the two would keep all others from moving marks. Whoever moves a
        mark from outside says so first, as for a replacement: what an owner that slept in between writes later counts
        only up to this offset.
        """
        with self._reaching():
            current = self._replacements()
            as_expected = self._offset(partition, current) in (before, offset) and replacements in (None, current.count)
            if as_expected:
                self.make()
                if replacements is None:
                    self.read_again(partition, offset)
                    current = self._replacements()
                put(self._mark(partition), b"%d %d\n" % (offset, current.count))
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

    def group(self, topic_id: str) -> str:
        """The group that reads a log."""
        path = self._group(topic_id)
        with self._reaching(), suppress(FileNotFoundError):
            return read_regular(path, DOCUMENT_BYTES).decode(errors="replace")
        return ""

    def note_group(self, topic_id: str, group: str) -> None:
        """Record the group that reads a log."""
        with self._reaching():
            self.make()
            put(self._group(topic_id), group.encode())

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


def read_mark(path: Path) -> tuple[int, int]:
    """The offset in this file, and the number of the last replacement that its owner knew of, 0 if none is there.

    Raises StoreError if the file is damaged.
    """
    offset, *known = read_numbers(path, "an offset: write the one to replay from into it", 2)
    return offset, known[0] if known else 0
