"""How a record is written to a file: as JSON lines, with one event on each line.

=============  ==================================================================================================
written        the line
=============  ==================================================================================================
by hand        the event itself, ``{"type":"triplet","model":"shop",...}``: no timestamp, no key
by our sink    the event with two fields spliced in front, ``{"logged":1790000000.250000,"key":"shop","type":...}``:
               still an event to every JSON tool, and read back to the very bytes that were sent
not plain      ``{"record":{"logged":..,"key":..,"headers":[["content-type","application/msgpack"]],"value":..}}``
               for a record that has headers, holds a newline or is not a JSON object (MessagePack, dead payloads)
=============  ==================================================================================================

``logged`` is when the sink took the record, in seconds since the epoch. In an envelope bytes are text if they are valid
UTF-8, otherwise ``{"base64":".."}``. A line that only looks like one of ours is delivered as if written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from omdml.streams.protocols.log import Partition, Record

_SPLICE = re.compile(rb'\{"logged":(\d{1,12}\.\d{6}),"key":(?:"([^"\\]*)"|null),(.*)', re.DOTALL)
_ENVELOPE = b'{"record":'


class Binary(msgspec.Struct, frozen=True):
    """Bytes that are not text; msgspec writes them as base64."""

    base64: bytes


Text = str | Binary


class Envelope(msgspec.Struct, frozen=True):
    """A record that cannot be written as a plain event."""

    logged: float
    key: str | None
    headers: tuple[tuple[str, Text], ...]
    value: Text


class _Line(msgspec.Struct, frozen=True):
    record: Envelope


_decoder = msgspec.json.Decoder(_Line)
_encoder = msgspec.json.Encoder()


def to_text(data: bytes) -> Text:
    """Bytes as JSON can carry them.

    Examples
    --------
    >>> to_text(b"caf\\xc3\\xa9"), to_text(b"\\xff")
    ('café', Binary(base64=b'\\xff'))
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Binary(data)


def to_bytes(text: Text) -> bytes:
    """The bytes that :func:`to_text` made the text from."""
    return text.base64 if isinstance(text, Binary) else text.encode()


def encode_line(
    value: bytes, timestamp: float, key: str | None = None, headers: Sequence[tuple[str, bytes]] = ()
) -> bytes:
    """One record as one line, its newline included.

    Examples
    --------
    >>> encode_line(b'{"type":"pair"}', 1790000000.25, "shop")
    b'{"logged":1790000000.250000,"key":"shop","type":"pair"}\\n'
    >>> encode_line(b"\\x81", 1790000000.25)
    b'{"record":{"logged":1790000000.25,"key":null,"headers":[],"value":{"base64":"gQ=="}}}\\n'
    """
    quoted = _quoted(key)
    if quoted and not headers and value.startswith(b'{"') and b"\n" not in value:
        return b'{"logged":%.6f,"key":%b,%b\n' % (timestamp, quoted, value[1:])
    texts = tuple((name, to_text(data)) for name, data in headers)
    return _encoder.encode(_Line(Envelope(timestamp, key, texts, to_text(value)))) + b"\n"


@lru_cache(maxsize=1024)
def _quoted(key: str | None) -> bytes | None:
    """The key as JSON; None if it needs escapes, because the splice cannot hold them."""
    quoted = _encoder.encode(key)
    return None if b"\\" in quoted else quoted


def decode_lines(lines: Iterable[bytes], partition: Partition, offset: int) -> list[Record]:
    """The records of whole lines without their newlines. The first begins at ``offset``; blank lines are skipped."""
    records = []
    splice = _SPLICE.match
    for line in lines:
        if pieces := splice(line):
            timestamp, key, rest = pieces.groups()
            records.append(Record(partition, offset, b"{" + rest, key, float(timestamp)))
        elif line.startswith(_ENVELOPE):
            records.append(_unwrapped(line, partition, offset))
        elif line and not line.isspace():
            records.append(Record(partition, offset, line))
        offset += len(line) + 1
    return records


def _unwrapped(line: bytes, partition: Partition, offset: int) -> Record:
    try:
        record = _decoder.decode(line).record
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Record(partition, offset, line)
    key = None if record.key is None else record.key.encode()
    headers = tuple((name, to_bytes(text)) for name, text in record.headers)
    return Record(partition, offset, to_bytes(record.value), key, record.logged, headers)
