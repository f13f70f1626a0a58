"""Sending the events of dead letters again, in files; no event is sent twice.

1. Events go into the log, each with a header that names its letter. 2. The letters are marked. After a crash between
the two, the headers are found in the log, and the letters are only marked. A lock keeps a second sender out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from omdml.errors import SourceError
from omdml.streams.bounded_files import open_regular
from omdml.streams.disk import take_lock
from omdml.streams.files.log import reaching
from omdml.streams.files.source import FileSink
from omdml.streams.letters import Dismissed, Letter, Position, Resent, headers_again, named
from omdml.streams.protocols.log import Record, Sink


class FileSender:
    """Sends letters of a log in files again.

    Parameters
    ----------
    log
        Every record of the feedback log: an event whose letter a crash left unmarked is in it.

    Raises
    ------
    SourceError
        Another process is sending.
    """

    def __init__(self, feedback: Sink, letters: FileSink, log: Iterator[list[Record]]) -> None:
        self._feedback, self._letters, self._log = feedback, letters, log
        self._lock = sending_alone(letters)
        # Positions of letters whose events are in the log already; read when the first one is sent.
        self._sent: set[Position] | None = None

    def send(self, letters: Sequence[tuple[Letter, str]], secret: bytes) -> None:
        """The events, then the marks. What comes first is on the disk before the rest is written."""
        if self._sent is None:
            self._sent = {name for records in self._log for record in records for name in named(record, secret)}
        for letter, key in letters:
            if letter.position not in self._sent:
                self._feedback.send(letter.payload, key, headers_again(letter, secret))
        self._feedback.flush()
        for letter, _ in letters:
            self._letters.send(Resent(letter.position).encode(), letter.model)
        self._letters.flush()

    def dismiss(self, letters: Sequence[Letter]) -> None:
        """Write marks that say the letters were dismissed, and wait until they are durable."""
        for letter in letters:
            self._letters.send(Dismissed(letter.position).encode(), letter.model)
        self._letters.flush()

    def close(self) -> None:
        """Close both sinks, and let another one send."""
        self._feedback.close()
        self._letters.close()
        os.close(self._lock)


def sending_alone(letters: FileSink) -> int:
    """A lock on these dead letters: the descriptor that holds it."""
    with reaching(letters.log.path):
        lock = open_regular(letters.log.beside("resend.lock"), os.O_RDWR | os.O_CREAT)
        if not take_lock(lock):
            os.close(lock)
            raise SourceError(
                f"dead letters {letters.log.path}: another omdml letters resend is at work: wait until it has ended"
            )
    return lock
