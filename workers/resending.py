"""Dead letters, explained and sent again once what was wrong is mended; no event is sent twice.

Kafka: the event and the mark of its letter are one transaction. A later sender fences the one before.

Files: 1. the event goes into the log, with a header that names its letter; 2. the letter is marked. After a crash
between them the header is found in the log, and the letter only marked. A lock keeps a later sender out.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol

from omdml.errors import FeedbackError, SourceError
from omdml.feedback import AnyFeedback, decode
from streams import protocols
from streams.disk import take_lock
from streams.files.log import reaching
from streams.files.regular import open_regular
from streams.files.source import FileSink
from streams.kafka.transaction import KafkaTransactions
from streams.letters import RESENT, Book, Letter, Position, Resent, position_of, resent_header
from streams.protocols import Partition, Record, Sink, Store
from workers.feed import check
from workers.intake import content_type
from workers.specs import Specs

NOWHERE = protocols.Position(Partition("", 0), 0)  # of a model without a checkpoint


class Verdict(NamedTuple):
    """Whether an event would be learned by now: it, or why not."""

    event: AnyFeedback | None
    why: str = ""


def settled(letters: Collection[Letter], store: Store) -> set[Position]:
    """Those whose events no worker can come by again: below the mark, or passed by the checkpoint of their model."""
    marks = store.marks({letter.partition for letter in letters})
    passed = store.positions(sorted({letter.model for letter in letters if letter.model}))
    return {
        letter.position
        for letter in letters
        for at in [passed.get(letter.model or "", NOWHERE)]
        if letter.offset < marks.get(letter.partition, 0) or (at.home == letter.partition and letter.offset < at.next)
    }


def judge(letter: Letter, specs: Specs, settled: Container[Position]) -> Verdict:
    """Look at a letter with today's models and items; one that is not settled a worker may take again, and learn."""
    # First: one that a router cut has its position in another topic, which no worker ever passes.
    if letter.digest is not None:
        return Verdict(None, "only its beginning was kept: it was too large, send the event itself again")
    if letter.position not in settled:
        return Verdict(None, "its worker has not saved how far it has come: try again (omdml topics status)")
    try:
        event = decode(letter.payload, content_type(letter.headers))
        check(event, specs.find(event.model))
    except FeedbackError as error:
        return Verdict(None, str(error))
    return Verdict(event)


def chosen(book: Book, reason: str | None, model: str | None, positions: Iterable[Position]) -> list[Letter]:
    """The letters of events that were not sent again, by reason, by model, or by position."""
    wanted = set(positions)
    return [
        letter
        for letter in book.letters.values()
        if letter.position not in book.resent
        and reason in (None, letter.reason)
        and model in (None, letter.model)
        and (not wanted or letter.position in wanted)
    ]


class Sender(Protocol):
    """Sends the event of a letter again, and marks the letter; the only one who does from when it is made."""

    def send(self, letter: Letter, key: str) -> None:
        """Both or, after a crash, what makes it both at the next try; ``key`` is the event's model."""

    def close(self) -> None:
        """Let go."""


class FileSender:
    """In files.

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
        self._feedback, self._letters = feedback, letters
        self._lock = sending_alone(letters)
        self._sent = {position for records in log for record in records for position in named(record)}

    def send(self, letter: Letter, key: str) -> None:
        """The event, then the mark, each on the disk before the next."""
        if letter.position not in self._sent:
            self._feedback.send(letter.payload, key, headers_again(letter))
            self._feedback.flush()
        self._letters.send(Resent(letter.position).encode(), letter.model)
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


class KafkaSender:
    """In Kafka: one transaction a letter."""

    def __init__(self, transactions: KafkaTransactions, topic: str, letters: str) -> None:
        self._transactions, self._topic, self._letters = transactions, topic, letters

    def send(self, letter: Letter, key: str) -> None:
        """The event and the mark, or neither."""
        with self._transactions as transaction:
            transaction.send(self._topic, letter.payload, key, headers_again(letter))
            transaction.send(self._letters, Resent(letter.position).encode(), key)

    def close(self) -> None:
        """Let go of the cluster."""
        self._transactions.close()


def headers_again(letter: Letter) -> list[tuple[str, bytes]]:
    """The headers of the event when it is sent again."""
    return [*(header for header in letter.headers if header[0] != RESENT), resent_header(letter.position)]


def named(record: Record) -> list[Position]:
    """The letter that a record of the log names, if it was sent again; what others put there names none."""
    found = []
    for name, value in record.headers:
        with suppress(ValueError):
            found += [position_of(value.decode())] if name == RESENT else []
    return found
