"""Events of dead letters that were sent again: a header names the letter, under a seal that senders cannot make."""

from __future__ import annotations

import re
from collections.abc import Container
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest

from omdml.errors import quoted
from omdml.streams.letters import Letter, Position
from omdml.streams.protocols.log import Partition, Record

# Headers of an event that was sent again. They hold the position of its letter, and a seal that nobody can make without
# the store's secret: otherwise a sender could pass an event of its own off as the copy of somebody else's. The second
# header is for events that could not be read at first: no model knows of itself that it refused these.
RESENT = "omdml-letter"
RESENT_UNREAD = "omdml-unread-letter"
SEAL_BYTES = 16

_POSITION = re.compile(r"(.*)/([0-9]{1,10})/([0-9]{1,20})", re.DOTALL)


def resent_header(position: Position, secret: bytes, read: bool = True) -> tuple[str, bytes]:
    """The header by which an event that was sent again names its letter; ``read`` if its model was known at first.

    ``secret`` is the store's.
    """
    (topic_id, number), offset = position
    text = f"{topic_id}/{number}/{offset}"
    return RESENT if read else RESENT_UNREAD, f"{text} {_seal(text, secret)}".encode()


def position_of(text: str) -> Position:
    """The position that ``topic id/partition/offset`` names; raises ValueError."""
    if not (match := _POSITION.fullmatch(text)):
        raise ValueError(f"{quoted(text)} is no position: expected topic id/partition/offset")
    return Partition(match[1], int(match[2])), int(match[3])


def headers_again(letter: Letter, secret: bytes) -> list[tuple[str, bytes]]:
    """The headers of the event when it is sent again; ``secret`` is the store's."""
    others = (header for header in letter.headers if header[0] not in (RESENT, RESENT_UNREAD))
    return [*others, resent_header(letter.position, secret, letter.model is not None)]


def named_letters(record: Record, secret: bytes, headers: Container[str] = (RESENT, RESENT_UNREAD)) -> list[Position]:
    """The letter that a record of the log names, if it was sent again; a forged header names none."""
    names = []
    for name, value in record.headers:
        if name in headers:
            with suppress(ValueError):
                text, _, seal = value.decode().rpartition(" ")
                if compare_digest(seal.encode(), _seal(text, secret).encode()):
                    names.append(position_of(text))
    return names


def position_of_copy(record: Record, secret: bytes | None) -> Position | None:
    """The position of the refused event that this one is a copy of.

    None if it is no copy, or if the store's secret, which tells, is not given.
    """
    return next(iter(named_letters(record, secret, (RESENT,))), None) if record.headers and secret else None


def _seal(text: str, secret: bytes) -> str:
    return blake2b(text.encode(), key=secret, digest_size=SEAL_BYTES, person=b"omdml-letter").hexdigest()
