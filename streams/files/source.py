"""A feedback log in files, for one machine: JSON lines in a folder of segments, or in one file that is rotated.

The form of a line is described in :mod:`omdml.streams.files.lines`. ``Record.offset`` is ``segment number << 40 | byte
offset``; the next offset after a record is the byte after its newline. There is one partition, number 0.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from omdml.errors import GapError, SourceError
from omdml.streams.bounded_files import open_regular
from omdml.streams.disk import locked, sync
from omdml.streams.files.appender import Appender
from omdml.streams.files.group_state import Committed, GroupState
from omdml.streams.files.lines import encode_line
from omdml.streams.files.log import OFFSET_BITS, reaching, size_of_segment
from omdml.streams.files.reader import LogReader, open_log
from omdml.streams.protocols.log import NOTHING, CommitResult, Listener, Outgoing, Partition, Record

SEGMENT_BYTES = 256 << 20
# Seconds between two looks at the file: the first while lines keep coming, then longer up to the second.
BUSY_PAUSE_S = 0.001
IDLE_PAUSE_S = 0.005

log = structlog.get_logger(__name__)


class FileSource:
    """Follows a log in files as the only reader of its group.

    Parameters
    ----------
    path
        The folder of segments, or the file.
    group
        The group whose committed position to go on from. The position is stored beside the segments.
    """

    partitions = 1
    partitioner = "murmur2"

    def __init__(self, path: str | Path, group: str = "omdml") -> None:
        self.log = open_log(path)
        self.topic_id = self.log.topic_id
        self.partition = Partition(self.topic_id, 0)
        self._group_state = GroupState(self.log, group)
        self._reader = LogReader(self.log)
        self._listener: Listener | None = None
        self._owned = False
        self._pause_s = BUSY_PAUSE_S
        # Whether the last commit could not be written.
        self._commit_failed = False

    def subscribe(self, listener: Listener, read: int | None = None) -> None:
        """Take the group's lock; raises SourceError if another process holds it. ``read`` is not used here."""
        self._group_state.lock()
        self._listener = listener

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """Records in order; waits for the first by looking at the file every 1 to 5 ms."""
        deadline = time.monotonic() + timeout_s
        self._join()
        if max_records < 1:
            return []
        while not (records := self._take(max_records)):
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return []
            time.sleep(min(self._pause_s, remaining_s))
            self._pause_s = min(self._pause_s * 1.25, IDLE_PAUSE_S)
        self._pause_s = BUSY_PAUSE_S
        return records

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on at this offset, or at the first record after it."""
        self._check(partition)
        self._reader.seek(offset)

    def commit(self, offsets: Mapping[Partition, int]) -> CommitResult:
        """Write the offset, with its segment's fingerprint, to ``<group>.commit``.

        The result is ``UNKNOWN`` if the file cannot be written.
        """
        if not self._owned:
            return CommitResult.NOT_OWNED
        for partition, offset in offsets.items():
            self._check(partition)
            committed = Committed(self.log.topic_id, offset, self._reader.fingerprints.get(offset >> OFFSET_BITS))
            try:
                self._group_state.write(committed)
            except SourceError as error:
                # The worker tries again twice a second.
                if not self._commit_failed:
                    self._commit_failed = True
                    action = "nothing is lost: checkpoints say where to go on"
                    log.warning("commit_failed", log=str(self.log.path), error=str(error), action=action)
                return CommitResult.UNKNOWN
            self._commit_failed = False
        return CommitResult.RECORDED

    def progress(self) -> Mapping[Partition, tuple[int, int]]:
        """The next offset and the log's end; empty until the partition is assigned."""
        if not self._owned:
            return {}
        with reaching(self.log.path):
            return {self.partition: (self._reader.position, self._reader.end)}

    @property
    def away(self) -> bool:
        """Always False: if the log cannot be read, ``poll`` raises."""
        return False

    def backlog(self, position: int, end: int) -> int:
        """The number of bytes between two positions, including all segments between them."""
        (number, byte), (newest, size) = divmod(position, 1 << OFFSET_BITS), divmod(end, 1 << OFFSET_BITS)
        with reaching(self.log.path):
            total = size - byte
            # The next poll raises the gap, which may be millions of segments wide.
            with suppress(GapError):
                for between in range(number, newest):
                    total += size_of_segment(self.log, between)
            return total

    def begin(self, partition: Partition) -> int:
        """The offset at which the oldest segment begins."""
        with reaching(self.log.path):
            return self.log.oldest() << OFFSET_BITS

    def end(self, partition: Partition) -> int:
        """The offset at which the newest segment ends."""
        with reaching(self.log.path):
            newest, size = self.log.newest()
        return newest << OFFSET_BITS | size

    def close(self, uncommitted: Mapping[Partition, int] = NOTHING) -> None:
        """Tell the listener that the partition is revoked, and release the lock.

        Nobody else can have kept this reader from committing, so there is nothing to make up for.
        """
        try:
            if self._owned and self._listener is not None:
                self._listener.revoked([self.partition])
        finally:
            self._owned = False
            self._listener = None
            self._reader.close()
            self._group_state.unlock()

    def _join(self) -> None:
        """At the first poll, tell the listener what is assigned, and start where it says."""
        if self._listener is None:
            raise SourceError(f"feedback log {self.log.path}: polled before subscribe(listener), or after close()")
        if self._owned:
            return
        committed = self._group_state.read()
        if committed is not None and committed.fingerprint is not None:
            self._reader.fingerprints[committed.segment] = committed.fingerprint
        offset = None if committed is None else committed.offset
        self._reader.seek(self._listener.assigned({self.partition: offset}).get(self.partition))
        self._owned = True

    def _take(self, most: int) -> list[Record]:
        try:
            return self._reader.take(most)
        except GapError as gap:
            begin, end = self.begin(self.partition), self.end(self.partition)
            gap.partition, gap.position, gap.available = self.partition, self._reader.position, (begin, end)
            gap.resume = end if gap.position > end else begin
            gap.cut = gap.resume < gap.position
            raise

    def _check(self, partition: Partition) -> None:
        if partition != self.partition:
            raise SourceError(f"feedback log {self.log.path}: it has partition {self.partition}, got {partition}")


class FileSink:
    """Appends events to a log in files. Any number of processes and threads may do so at the same time.

    Each event is written as a whole line, under the log's lock. If a killed writer left a part of a line, the next
    writer ends it with a newline. Readers get that part as a record of its own, and every other record is whole.

    Parameters
    ----------
    path
        A folder of segments (made if there is none), or a file.
    segment_bytes
        The size in bytes at which a folder's segment is full and the next one begins. Other programs rotate a
        single file.
    keep_bytes
        The most bytes of a folder. Its oldest segments are deleted when a new one begins. None keeps all.
    fsync
        Whether ``flush`` waits for the disk. If not, events survive the end of the process, but not of the machine.
    """

    def __init__(
        self,
        path: str | Path,
        segment_bytes: int = SEGMENT_BYTES,
        fsync: bool = True,
        keep_bytes: int | None = None,
    ) -> None:
        self.log = open_log(path)
        self.segment_bytes = segment_bytes
        self.keep_bytes = keep_bytes
        self.fsync = fsync
        self._threads = threading.Lock()
        self._file: Appender | None = None
        with reaching(self.log.path):
            self._lock: int | None = open_regular(self.log.identity)

    def send(self, value: bytes, key: str | None = None, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        """Append one event; readers see it at once. Raises SourceError."""
        self.send_many([(value, key, headers)])

    def send_many(self, events: Sequence[Outgoing]) -> None:
        """Append events under one lock, with one write for each segment that takes some of them.

        If the disk has no room for all of them, none is written; otherwise only events of more bytes than a segment
        take several writes.
        """
        with self._threads, reaching(self.log.path):
            if self._lock is None:
                raise SourceError(f"feedback log {self.log.path}: sent to after close()")
            with locked(self._lock):
                # The clock is read under the lock, so that times rise with offsets.
                now = time.time()
                self._append([encode_line(event[0], now, *event[1:]) for event in events])

    def flush(self, timeout_s: float = 30.0) -> None:
        """Wait for the disk if ``fsync`` is set. ``timeout_s`` is not used: the operating system has no limit here."""
        with self._threads, reaching(self.log.path):
            if self._file is not None and self.fsync:
                self._file.sync()

    def close(self) -> None:
        """Flush, then close the file and the lock."""
        try:
            self.flush()
        finally:
            with self._threads:
                if self._file is not None:
                    self._file.close()
                if self._lock is not None:
                    os.close(self._lock)
                self._file = self._lock = None

    def _append(self, lines: list[bytes]) -> None:
        """Write lines, none across two segments. The caller holds the log's lock."""
        total = sum(map(len, lines))
        while lines:
            # If all lines fit into a segment together, they stay together.
            file = self._file_for(total if total <= self.segment_bytes else len(lines[0]))
            room = file.room(self.segment_bytes)
            count, length = 1, len(lines[0])
            while count < len(lines) and length + len(lines[count]) <= room:
                length += len(lines[count])
                count += 1
            file.append(lines[0] if count == 1 else b"".join(lines[:count]))
            lines = lines[count:]

    def _file_for(self, length: int) -> Appender:
        """The file that takes the next line. The caller holds the log's lock."""
        path = self.log.growing()
        if self._file is None or not self._file.is_at(path):
            self._file = self._opened(path)
        if not self._file.has_room(length, self.segment_bytes) and (path_after := self.log.next_segment()):
            self._file = self._opened(path_after)
            if self.keep_bytes is not None:
                self._thin_out(self.keep_bytes)
        return self._file

    def _thin_out(self, keep_bytes: int) -> None:
        """Remove the oldest segments, so that the others and the one that just began have at most ``keep_bytes``."""
        removed = self.log.thin_out(keep_bytes - self.segment_bytes)
        if removed:
            log.warning(
                "log_thinned",
                log=str(self.log.path),
                segments=removed,
                reason=f"the log would have more than {keep_bytes / 1e6:g} MB",
            )

    def _opened(self, path: Path) -> Appender:
        """Open the file to go on with. The one so far is flushed first, because no later ``flush`` reaches it."""
        if self._file is not None:
            if self.fsync:
                self._file.sync()
            self._file.close()
            self._file = None
        opened = Appender(path)
        if self.fsync:
            sync(path.parent)
        return opened
