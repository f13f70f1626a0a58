"""Sends the events of dead letters again, in files. No event is sent twice.

1. The events are appended to the log, each with a header that names its letter.
2. The letters are marked as sent.

After a crash between the two steps, the next run finds the headers in the log and only marks the letters. A lock keeps
a second sender out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from omdml.errors import SourceError
from omdml.streams.bounded_files import open_regular
from omdml.streams.disk import take_lock
from omdml.streams.files.log import reaching
from omdml.streams.files.source import FileSink
from omdml.streams.letters import Dismissed, Letter, Position, Resent
from omdml.streams.protocols.log import Record, Sink
from omdml.streams.resent_events import headers_again, named_letters


class FileSender:
    """Sends letters of a log in files again.

    Parameters
    ----------
    log
        Every record of the feedback log. If a crash left a letter unmarked, its event is in there.

    Raises
    ------
    SourceError
        Another process is sending.
    """

    def __init__(self, feedback: Sink, letters: FileSink, log: Iterator[list[Record]]) -> None:
        self._feedback, self._letters, self._log = feedback, letters, log
        self._lock = lock_letters(letters)
        # Positions of letters whose events are in the log already; read when the first one is sent.
        self._sent: set[Position] | None = None

    def send(self, letters: Sequence[tuple[Letter, str]], secret: bytes) -> None:
        """Append the events, then mark the letters. The events are on the disk before any mark is written."""
        if self._sent is None:
            self._sent = self._sent_before(secret)
        for letter, key in letters:
            if letter.position not in self._sent:
                self._feedback.send(letter.payload, key, headers_again(letter, secret))
        self._feedback.flush()
        for letter, _ in letters:
            self._letters.send(Resent(letter.position).encode(), letter.model)
        self._letters.flush()

    def _sent_before(self, secret: bytes) -> set[Position]:
        """The positions of all letters whose events the log holds."""
        sent: set[Position] = set()
        for records in self._log:
            for record in records:
                sent.update(named_letters(record, secret))
        return sent

    def dismiss(self, letters: Sequence[Letter]) -> None:
        """Write marks that say the letters were dismissed, and wait until they are durable."""
        for letter in letters:
            self._letters.send(Dismissed(letter.position).encode(), letter.model)
        self._letters.flush()

    def close(self) -> None:
        """Close both sinks, and release the lock for another sender."""
        self._feedback.close()
        self._letters.close()
        os.close(self._lock)


def lock_letters(letters: FileSink) -> int:
    """Lock these dead letters; returns the descriptor that holds the lock. Raises SourceError if another one does."""
    with reaching(letters.log.path):
        lock = open_regular(letters.log.beside("resend.lock"), os.O_RDWR | os.O_CREAT)
        if not take_lock(lock):
            os.close(lock)
            raise SourceError(
                f"dead letters {letters.log.path}: another `omdml letters resend` is running: wait until it has ended"
            )
    return lock
