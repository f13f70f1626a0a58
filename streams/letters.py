"""Dead letters: events that cannot be learned, kept with their position and the reason, whatever the log is made of.

A letter is one line of JSON in a sink of its own. The same refused record always makes the same letter, byte for byte;
a worker that starts again after a crash sends some of them twice, and readers tell these by their position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Annotated, NamedTuple, Protocol

import msgspec
import structlog

from omdml.errors import CorruptError, FeedbackError, FormatError, shortened
from omdml.feedback import MAX_EVENT_BYTES
from omdml.formats import LETTER, NumberedLater
from omdml.streams.files.lines import Text, to_bytes, to_text
from omdml.streams.protocols.log import Outgoing, Partition, Record, Sink

# What a message takes at most beside its letter.
OVERHEAD_BYTES = 16 << 10
# Such a letter fits into a message of Kafka's default size.
MAX_LETTER_BYTES = MAX_EVENT_BYTES - OVERHEAD_BYTES
# What is kept of each part of a record that is too large for a letter.
CUT_BYTES = 1000
CUT_HEADERS, CUT_HEADER_BYTES = 20, 100
# How many bytes of JSON one byte of a record can take.
WIDEST = 6
# Bytes of letters that are handed to the sink at once.
PIECE_BYTES = 1 << 20
# Bytes of letters that no flush has acknowledged. If there are more, a flush is made.
MAX_HELD_BYTES = 32 << 20

Position = tuple[Partition, int]
# No log has larger offsets, but whoever may write to the dead letters can write any number into one.
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

log = structlog.get_logger(__name__)


class _Common(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    reason: str
    error: str
    partition: Partition
    offset: Offset
    model: str | None = None
    at: float | None = None
    digest: str | None = None


class Letter(_Common, frozen=True, kw_only=True):
    """A refused event.

    Parameters
    ----------
    reason
        A code out of :data:`omdml.letter_reasons.REASONS`; ``error`` is the message beside it.
    partition, offset
        The event's partition and offset. Two letters with the same position are the same letter.
    model
        The model the event was for; None if that is not known.
    at
        The record's time stamp, in seconds since the epoch, if it has one.
    digest
        Sha256 of the payload, if the letter holds only its beginning: such an event cannot be sent again.
    payload, key, headers
        Those of the record, or only their beginnings if ``digest`` is set.
    """

    payload: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def position(self) -> Position:
        """The partition and offset of the refused event, which identify the letter."""
        return self.partition, self.offset

    @property
    def record_bytes(self) -> int:
        """How many bytes of the record the letter holds."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.payload) + len(self.key or b"") + len(self.model or "") + headers

    @classmethod
    def of(
        cls, record: Record, error: FeedbackError, model: str | None = None, limit: int = MAX_LETTER_BYTES
    ) -> Letter:
        """The letter about a record that could not be learned; cut if it would have more than ``limit`` bytes."""
        letter = cls(
            reason=error.reason,
            error=str(error)[:CUT_BYTES],
            partition=record.partition,
            offset=record.offset,
            payload=record.value,
            model=model,
            key=record.key,
            headers=record.headers,
            at=record.timestamp,
        )
        if error.reason == "oversize" or len(record.value) > limit:
            return letter.cut()
        # A record this small fits even if each of its bytes takes the most that JSON needs, so encoding is spared.
        if WIDEST * letter.record_bytes + OVERHEAD_BYTES <= limit:
            return letter
        return letter if len(letter.encode()) <= limit else letter.cut()

    def cut(self) -> Letter:
        """The same letter with the beginnings of what is large, and the payload's digest."""
        return msgspec.structs.replace(
            self,
            payload=self.payload[:CUT_BYTES],
            key=self.key and self.key[:CUT_BYTES],
            headers=tuple(
                (name[:CUT_HEADER_BYTES], value[:CUT_HEADER_BYTES]) for name, value in self.headers[:CUT_HEADERS]
            ),
            digest=sha256(self.payload).hexdigest(),
        )

    def encode(self) -> bytes:
        """One line of JSON, without its newline; bytes are text if they are valid UTF-8, else base64."""
        return _encoder.encode(
            _Line(
                reason=self.reason,
                error=self.error,
                partition=self.partition,
                offset=self.offset,
                model=self.model,
                at=self.at,
                digest=self.digest,
                payload=to_text(self.payload),
                key=None if self.key is None else to_text(self.key),
                headers=tuple((name, to_text(value)) for name, value in self.headers),
                format=LETTER.number,
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> Letter:
        """The inverse of :meth:`encode`; raises CorruptError, FormatError if another release wrote it."""
        try:
            LETTER.check(_numbers.decode(data).format, "dead letter")
            line = _lines.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptError(
                f"dead letter: {len(data)} bytes that cannot be read ({shortened(str(error))})"
            ) from error
        fields = {name: getattr(line, name) for name in _Common.__struct_fields__}
        key = None if line.key is None else to_bytes(line.key)
        headers = tuple((name, to_bytes(value)) for name, value in line.headers)
        return cls(payload=to_bytes(line.payload), key=key, headers=headers, **fields)


class _Line(_Common, frozen=True, kw_only=True):
    payload: Text
    key: Text | None = None
    headers: tuple[tuple[str, Text], ...] = ()
    # The default is another number, so the number is always written.
    format: int = 0


class DeadLetters:
    """Writes letters into a sink.

    Letters stay here until a flush has acknowledged them: after one that failed, all of them are sent again.

    Parameters
    ----------
    max_message_bytes
        The size of the largest message that the sink takes, with overhead. Letters that need more are cut.
    """

    def __init__(self, sink: Sink, max_message_bytes: int = MAX_EVENT_BYTES) -> None:
        self._sink = sink
        self._limit = min(max_message_bytes, MAX_EVENT_BYTES) - OVERHEAD_BYTES
        self._unacknowledged: list[Outgoing] = []
        self._bytes = 0
        self._resend = False

    def add(self, record: Record, error: FeedbackError, model: str | None = None) -> None:
        """Send the letter about a record; raises SourceError if the sink can take no more for now."""
        self.add_many([(record, error, model)])

    def add_many(self, refused: Iterable[tuple[Record, FeedbackError, str | None]]) -> int:
        """Send letters about the first of these records, as many as a piece holds; returns how many.

        Raises SourceError if the sink can take no more for now: then send the same again.
        """
        if self._resend or self._bytes > MAX_HELD_BYTES:
            self.flush()
        lines: list[Outgoing] = []
        size = 0
        for record, error, model in refused:
            lines.append((Letter.of(record, error, model, self._limit).encode(), model))
            size += len(lines[-1][0])
            if size > PIECE_BYTES:
                break
        self._sink.send_many(lines)
        self._unacknowledged += lines
        self._bytes += size
        return len(lines)

    def flush(self, timeout_s: float = 30.0) -> None:
        """Return when every letter is acknowledged: before that, no commit may pass their events.

        Raises SourceError when they could not be; nothing is forgotten then.
        """
        if not self._unacknowledged:
            return
        if self._resend:
            self._sink.send_many(self._unacknowledged)
        self._resend = True
        self._sink.flush(timeout_s)
        self._resend = False
        self._unacknowledged.clear()
        self._bytes = 0

    def close(self) -> None:
        """Flush the letters, then close the sink."""
        self._sink.close()


class Resent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line among the letters which says that the event of one was sent again: it is never sent a third time."""

    resent: Position
    format: int = LETTER.number

    def encode(self) -> bytes:
        """One line of JSON, without its newline."""
        return msgspec.json.encode(self)


class Dismissed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line among the letters which says that an operator has settled one: its event is not to be learned any more."""

    dismissed: Position
    format: int = LETTER.number

    def encode(self) -> bytes:
        """One line of JSON, without its newline."""
        return msgspec.json.encode(self)


class Book(NamedTuple):
    """The dead letters of a log, by position. If an event has several letters, this has the first one.

    A letter is settled if its event was sent again, or if somebody dismissed the letter.
    """

    letters: dict[Position, Letter]
    resent: set[Position]
    dismissed: set[Position]

    @property
    def open(self) -> list[Letter]:
        """The letters that wait for somebody to do something about them."""
        return [
            letter
            for position, letter in self.letters.items()
            if position not in self.resent and position not in self.dismissed
        ]


def read_book(records: Iterable[Record]) -> Book:
    """The letters in these records. A record that is no letter, such as a torn line, is skipped with a warning."""
    book = Book({}, set(), set())
    for record in records:
        try:
            mark = _marks.decode(record.value)
            LETTER.check(mark.format, f"dead letters: {record.partition}/{record.offset}")
            book.resent.update([mark.resent] if mark.resent else [])
            book.dismissed.update([mark.dismissed] if mark.dismissed else [])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            try:
                letter = Letter.decode(record.value)
                book.letters.setdefault(letter.position, letter)
            except FormatError as error:
                # The line may say that an event was sent again.
                raise FormatError(f"{record.partition}/{record.offset}: {error}") from error
            except CorruptError as error:
                place = {"partition": str(record.partition), "offset": record.offset}
                log.warning("letter_skipped", **place, error=str(error), action="it is passed over")
    return book


def read_letters(records: Iterable[Record]) -> Iterator[Letter]:
    """The letters in these records, the first of each event."""
    yield from read_book(records).letters.values()


class _Mark(msgspec.Struct, forbid_unknown_fields=True):
    """What marks of resent and of dismissed letters have in common."""

    resent: Position | None = None
    dismissed: Position | None = None
    format: int = 1

    def __post_init__(self) -> None:
        if self.resent is None and self.dismissed is None:
            raise ValueError("it marks no letter")


_encoder = msgspec.json.Encoder()
_lines = msgspec.json.Decoder(_Line)
_marks = msgspec.json.Decoder(_Mark)
_numbers = msgspec.json.Decoder(NumberedLater)


class Sender(Protocol):
    """Settles letters: sends their events again, or dismisses them. From when it is made, no other sender can."""

    def send(self, letters: Sequence[tuple[Letter, str]], secret: bytes) -> None:
        """Send the events of these letters, in order, and mark the letters.

        If a crash leaves some events sent and their letters unmarked, the next try marks those letters. No event is
        sent twice.

        Parameters
        ----------
        letters
            Each with its event's model, which is the key.
        secret
            The store's.
        """

    def dismiss(self, letters: Sequence[Letter]) -> None:
        """Mark these letters as settled; their events are not sent."""

    def close(self) -> None:
        """Release all resources. The object is not used again."""
