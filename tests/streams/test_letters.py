"""Dead letters: nothing of a refused event is lost, and nothing of it stops the stream."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omdml.errors import CorruptError, FeedbackError
from omdml.feedback import MAX_EVENT_BYTES, decode
from omdml.formats import LETTER
from omdml.letter_reasons import REASONS
from omdml.streams.files.source import FileSink
from omdml.streams.letters import CUT_BYTES, MAX_LETTER_BYTES, DeadLetters, Letter, read_letters
from omdml.streams.memory_log import MemoryLog, MemorySink
from omdml.streams.protocols.log import Partition, Record
from tests.support.files.files import read_records

PARTITION = Partition("4f3c", 3)
INVALID = FeedbackError("event: it has no field 'irrelevant', which is needed: add it")
OVERSIZE = FeedbackError("event of 2000000 bytes, at most 1048576 are taken: split it", reason="oversize")


def record(value: bytes = b'{"type":"triplet"}', offset: int = 7) -> Record:
    return Record(PARTITION, offset, value, b"shop", 1790000000.25, (("content-type", b"application/json"),))


def test_a_letter_shows_a_text_payload_as_text() -> None:
    line = Letter.of(record("{'naïve'}".encode()), INVALID, "shop").encode()
    assert b"\n" not in line
    assert json.loads(line) == {
        "reason": "invalid",
        "error": str(INVALID),
        "partition": ["4f3c", 3],
        "offset": 7,
        "model": "shop",
        "at": 1790000000.25,
        "payload": "{'naïve'}",
        "key": "shop",
        "headers": [["content-type", "application/json"]],
        "format": LETTER.number,
    }


def test_a_letter_says_nothing_of_what_is_not_known() -> None:
    letter = Letter.of(Record(PARTITION, 7, b"\xff"), INVALID)
    assert json.loads(letter.encode()) == {
        "reason": "invalid",
        "error": str(INVALID),
        "partition": ["4f3c", 3],
        "offset": 7,
        "payload": {"base64": "/w=="},
        "format": LETTER.number,
    }


@given(
    st.binary(),
    st.none() | st.binary(),
    st.lists(st.tuples(st.text(), st.binary())),
    st.sampled_from(sorted(REASONS)),
    st.integers(0, 2**62),
)
def test_any_bytes_survive_a_letter(
    value: bytes, key: bytes | None, headers: list[tuple[str, bytes]], reason: str, offset: int
) -> None:
    refused = Record(PARTITION, offset, value, key, None, tuple(headers))
    letter = Letter.of(refused, FeedbackError("why", reason=reason), "modèle")
    assert Letter.decode(letter.encode()) == letter
    assert letter.position == (PARTITION, offset)
    if reason != "oversize":
        assert (letter.payload, letter.key, letter.headers) == (value, key, refused.headers)
        assert letter.digest is None


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"x" * (MAX_EVENT_BYTES + 1), OVERSIZE),
        (b"x" * MAX_EVENT_BYTES, INVALID),
        # In base64 this is a third longer.
        (b"\xff" * (MAX_EVENT_BYTES * 9 // 10), INVALID),
        # JSON writes six bytes for each of these.
        (b"\x01" * (MAX_EVENT_BYTES // 4), INVALID),
    ],
)
def test_a_letter_that_would_be_too_large_keeps_the_beginning_and_a_digest(value: bytes, error: FeedbackError) -> None:
    letter = Letter.of(record(value), error)
    assert letter.payload == value[:CUT_BYTES]
    assert letter.digest == sha256(value).hexdigest()
    assert len(letter.encode()) < MAX_LETTER_BYTES
    assert Letter.decode(letter.encode()) == letter


def test_a_letter_is_cut_to_what_its_sink_takes() -> None:
    log = MemoryLog()
    letters = DeadLetters(MemorySink(log), max_message_bytes=100_000)
    letters.add(record(b"\xff" * 50_000, offset=8), INVALID)
    # In base64 this is 93 kB long.
    letters.add(record(b"\xff" * 70_000, offset=9), INVALID)
    letters.flush()
    first, second = read_letters(log.read(log.partitions[0], 0, 10))
    assert (first.payload, first.digest) == (b"\xff" * 50_000, None)
    assert (second.payload, second.digest) == (b"\xff" * CUT_BYTES, sha256(b"\xff" * 70_000).hexdigest())


def test_headers_and_keys_of_any_size_do_not_make_a_letter_too_large() -> None:
    large = Record(PARTITION, 7, b"x", b"\1" * 2_000_000, None, (("\1" * 100_000, b"\1" * 2_000_000),) * 30)
    letter = Letter.of(large, INVALID)
    assert letter.digest is not None
    assert len(letter.encode()) < 64_000


def test_the_same_refusal_makes_the_same_bytes() -> None:
    assert Letter.of(record(), INVALID).encode() == Letter.of(record(), INVALID).encode()


@pytest.mark.parametrize("data", [b"", b"{", b'{"reason":"invalid"}', b"\xff", b'{"type":"triplet","model":"shop"}'])
def test_what_is_no_letter_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptError, match="dead letter"):
        Letter.decode(data)


def test_letters_are_keyed_by_model() -> None:
    log = MemoryLog()
    letters = DeadLetters(MemorySink(log))
    letters.add(record(), INVALID, "shop")
    letters.add(record(), OVERSIZE)
    letters.add(record(offset=8), INVALID)
    letters.flush()
    letters.close()
    assert [entry.key for entry in log.read(log.partitions[0], 0, 10)] == [b"shop", None, None]


def test_letters_sent_twice_after_a_crash_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "letters.jsonl"
    refused = [record(b"\xff\n\x00", offset=5), record(b"not json", offset=9)]
    for survivors in (refused[:1], refused):
        letters = DeadLetters(FileSink(path))
        for dead in survivors:
            with pytest.raises(FeedbackError) as error:
                decode(dead.value)
            letters.add(dead, error.value, "shop")
        letters.close()
        with path.open("ab") as file:
            # A crash tore this line.
            file.write(b'{"logged":179')
    assert [letter.payload for letter in read_letters(read_records(path))] == [b"\xff\n\x00", b"not json"]
