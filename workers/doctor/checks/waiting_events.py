"""Whether events wait in the log that nobody takes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from omdml.streams.bounded_files import opened
from omdml.streams.files.group_state import GroupState
from omdml.streams.files.log import OFFSET_BITS, reaching
from omdml.streams.files.reader import LogReader, open_log
from omdml.streams.files.tail import MAX_LINE_BYTES
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import MarkStore
from omdml.workers.configuration.config import FileLog
from omdml.workers.configuration.wording import amount, amount_is, span, when
from omdml.workers.doctor.findings import Remark, error, warning

# At most this many waiting events are counted.
MOST = 10_000
# A worker saves once a second, so what waits for longer than this is worth a look.
BEHIND_S = 60.0


class Reading(NamedTuple):
    """Who reads a log in files, and what waits in it.

    Parameters
    ----------
    reader
        The number of the worker's process; empty if there is none.
    events
        How many events wait from ``offset`` on. More than ``MOST`` are counted as one more than ``MOST``.
    since
        Since when the first of them waits, in seconds since the epoch; None if that is not known.
    store_lost
        Whether the log was read before, and the store knows nothing of it.
    """

    reader: str
    events: int
    offset: int
    since: float | None
    store_lost: bool


def look_at_files(config: FileLog, store: MarkStore | None) -> Reading:
    """Look at a log in files. Without a store, the commit alone says which events wait.

    Raises SourceError or GapError if the log cannot be read from where its worker stopped.
    """
    log = open_log(config.path)
    state, partition = GroupState(log, config.group), Partition(log.topic_id, 0)
    committed, mark = state.read(), store.marks([partition]).get(partition) if store else None
    start = mark if mark is not None else committed.offset if committed else log.oldest() << OFFSET_BITS
    waits = waiting(LogReader(log), start)
    return Reading(state.reader(), *waits, store_lost=store is not None and committed is not None and mark is None)


def file_log(config: FileLog, reading: Reading, now: float) -> str | list[Remark]:
    """What is wrong with how a log in files is read."""
    reader, count, first, oldest, store_lost = reading
    if store_lost:
        return [error(f"{config.path} was read before, but the store knows nothing of it: the store was emptied, is "
                      "another one, or its disk is not mounted, and no worker goes on. Correct store.url, or restore "
                      "the store. Or learn the log again: take an empty store and another log.group")]  # fmt: skip
    if not count and not reader:
        return [warning(f"no worker is running (group {config.group!r}). Everything in {config.path} is learned and "
                        "saved, but what comes next will wait. Start one: omdml worker")]  # fmt: skip
    if not count:
        return f"everything in {config.path} is learned and saved; process {reader} reads it"
    at_least = "more than " if count > MOST else ""
    events = f"{at_least}{amount(min(count, MOST), 'event')} in {config.path} from offset {first} on"
    since = f", the oldest of {when(oldest)} ({span(now - oldest)} ago)" if oldest is not None else ""
    if not reader:
        return [error(f"no worker is running (group {config.group!r}), and {events} wait to be learned{since}. Start "
                      "one: omdml worker. If one should be running, its log says why it ended")]  # fmt: skip
    if oldest is None or now - oldest < BEHIND_S:
        return f"process {reader} reads {config.path}; {amount_is(min(count, MOST), 'event')} not yet saved"
    return [warning(f"process {reader} holds the log, but {events} are not learned or not saved{since}. Run this "
                    "again. If the number does not fall, read the process's log: a model waits (see checkpoints), the "
                    "store refuses writes, or the process hangs")]  # fmt: skip


def waiting(reader: LogReader, start: int) -> tuple[int, int, float | None]:
    """How many events lie at or after an offset, and offset and time of the first one.

    More than ``MOST`` events count as one more than that.
    """
    reader.seek(start)
    try:
        records = reader.take(1)
        if not records:
            return 0, start, None
        first, count = records[0], len(records)
        while count <= MOST and (records := reader.take(MOST)):
            count += len(records)
        return min(count, MOST + 1), first.offset, first.timestamp
    finally:
        reader.close()


def is_no_log(path: str) -> list[Remark]:
    """A warning if a file does not begin with JSON, as a feedback log does."""
    file_path = Path(path)
    if not file_path.is_file():
        return []
    with reaching(file_path), opened(file_path) as file:
        line: bytes = file.readline(MAX_LINE_BYTES)
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if line.endswith(b"\n") or len(line) == MAX_LINE_BYTES:
            return [warning(f"{path}: its first line is not JSON, expected a feedback log with an event on each line. "
                            "If it is another file, set log.path: workers make a dead letter of each of its lines, and "
                            "feedback is appended to it")]  # fmt: skip
    return []


def log_to_come(path: str) -> str | list[Remark]:
    """What is known of a log that nobody has opened yet; nothing is created."""
    log_path = Path(path)
    if refused := cannot_come(f"feedback log {path}", log_path):
        return refused
    if log_path.is_file() and log_path.stat().st_size:
        return is_no_log(path) or [
            warning(f"{path} is there, and no worker has read any of it: start one, omdml worker")
        ]
    return f"{path} can be written; it begins with the first worker, or the first event"


def cannot_come(what: str, path: Path) -> list[Remark]:
    """An error if this user may not create something that does not exist yet; nothing is created."""
    target = path.absolute()
    nearest = next(folder for folder in (target, *target.parents) if folder.exists())
    if os.access(nearest, os.W_OK):
        return []
    return [error(f"{what}: {nearest} cannot be written: give this user the right to write there")]
