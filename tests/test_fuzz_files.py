"""Any content of files and keys that we read back is read, skipped, or refused by one of our errors.

``make fuzz`` drives these as well (:mod:`tests.fuzz`).
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from omdml.errors import FeedbackError, OmdmlError, SourceError, StoreError
from omdml.feedback import decode
from omdml.streams.files.group_state import GroupState
from omdml.streams.files.lines import decode_lines
from omdml.streams.files.segments import SegmentedLog
from omdml.streams.letters import read_book
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.resent_events import RESENT, named_letters, position_of, resent_header
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.redis.keys import read_entry, read_pointer, read_position
from tests.formats.samples import SAMPLES, Sample
from tests.formats.stores import PARTITION
from tests.support.files.damage import damaged, raises_at_most
from tests.support.files.files import read_records

fuzzed = settings(deadline=None, suppress_health_check=list(HealthCheck))
DIGITS = b"9" * 5000
SPLICED = b'{"logged":1790000000.250000,"key":"shop","type":"triplet","model":"shop","query":"a"}'
WRAPPED = b'{"record":{"logged":1.5,"key":null,"headers":[["a","b"]],"value":{"base64":"gQ=="}}}'


def newest_sample(what: str) -> Path:
    """The newest sample of a format."""
    samples: dict[str, Sample] = {sample.format.what: sample for sample in SAMPLES}
    return samples[what].kept()[samples[what].format.number]


@functools.cache
def letters() -> list[bytes]:
    """The lines of the kept sample of dead letters."""
    return (newest_sample("dead letter") / "letters.jsonl").read_bytes().splitlines()


@fuzzed
@given(st.lists(damaged([SPLICED, WRAPPED]), max_size=3))
@example([SPLICED.replace(b"1790000000", DIGITS)])
@example([WRAPPED.replace(b"1.5", DIGITS), WRAPPED.replace(b"1.5", b"1e" + DIGITS), b"[" * 5000])
def test_lines_of_a_log_are_records_whatever_they_hold(lines):
    for record in decode_lines([line.replace(b"\n", b"") for line in lines], PARTITION, 0):
        assert record.timestamp is None or record.timestamp < 1e13
        with raises_at_most(FeedbackError):
            decode(record.value)


@fuzzed
@given(st.data())
def test_what_lies_among_letters_is_read_skipped_or_refused(data):
    sent = data.draw(st.lists(damaged(letters()), max_size=3))
    with raises_at_most(OmdmlError):
        for letter in read_book(Record(PARTITION, index, line) for index, line in enumerate(sent)).letters.values():
            letter.encode()


@pytest.mark.parametrize("field", [b'"offset":1', b'"at":5.5', b'"format":2'])
def test_a_letter_with_a_number_of_thousands_of_digits_is_skipped(field):
    line = letters()[0].replace(field, field[: field.index(b":") + 1] + DIGITS)
    assert line != letters()[0]
    assert read_book([Record(PARTITION, 0, line)]).letters == {}


@fuzzed
@given(st.binary(max_size=40))
def test_a_header_that_names_no_letter_is_passed_over(value):
    assert named_letters(Record(PARTITION, 0, b"", headers=((RESENT, value),)), b"secret") == []


def test_a_position_survives_its_header():
    position = Partition("a/b", 3), 77
    header = resent_header(position, b"secret")
    assert named_letters(Record(PARTITION, 0, b"", headers=(header,)), b"secret") == [position]


@pytest.mark.parametrize("text", ["t/0/" + "9" * 5000, "t/" + "9" * 5000 + "/0", "t/²/3"])
def test_a_text_that_names_no_position_is_refused(text):
    with pytest.raises(ValueError, match="is no position"):
        position_of(text)


@fuzzed
@given(st.data())
def test_a_committed_position_is_read_or_refused(data):
    sample = newest_sample("committed position")
    written = (sample / "omdml.commit").read_bytes()
    with tempfile.TemporaryDirectory() as folder, raises_at_most(SourceError):
        (Path(folder) / "log.id").write_bytes((sample / "log.id").read_bytes())
        (Path(folder) / "omdml.commit").write_bytes(
            data.draw(damaged([written, written.replace(b'"offset":', b'"offset":' + DIGITS)]))
        )
        assert GroupState(SegmentedLog(Path(folder)), "omdml").read()


LEDGER = b"0123456789abcdef0123456789abcdef\n1 77 " + b"a" * 64 + b"\n2 78 " + b"b" * 64 + b"\n"


@fuzzed
@given(damaged([LEDGER]))
@example(LEDGER.replace(b"\n1 ", b"\n" + DIGITS + b" "))
@example(LEDGER.replace(b" 78 ", b" " + DIGITS + b" "))
def test_a_ledger_of_a_rotated_log_is_read_or_refused(written):
    with tempfile.TemporaryDirectory() as folder, raises_at_most(SourceError):
        (Path(folder) / "clicks.jsonl.id").write_bytes(written)
        (Path(folder) / "clicks.jsonl").write_bytes(b"{}\n")
        list(read_records(Path(folder) / "clicks.jsonl"))


@functools.cache
def state() -> dict[str, bytes]:
    """The files of a folder store."""
    folder = newest_sample("folder store")
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@fuzzed
@given(st.data())
def test_a_folder_store_with_a_damaged_file_answers_or_refuses(data):
    files = dict(state())
    name = data.draw(st.sampled_from(sorted(files)))
    files[name] = data.draw(damaged([files[name]]) | st.just(DIGITS))
    with tempfile.TemporaryDirectory() as folder:
        for path, content in files.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_bytes(content)
        for use in (
            lambda store: store.load("shop"),
            lambda store: store.history("shop"),
            lambda store: store.peek("shop"),
            lambda store: store.claim("shop"),
            lambda store: store.marks([PARTITION]),
        ):
            with raises_at_most(OmdmlError):
                use(DirectoryStore(folder))


numbers = st.binary(max_size=20) | st.sampled_from([DIGITS, b"-1", b"", b"1", b"nan", b"1e999"])


@fuzzed
@given(st.fixed_dictionaries(dict.fromkeys((b"serial", b"version", b"published_at", b"at", b"pinned"), numbers)))
def test_what_lies_in_redis_is_understood_or_shown(fields):
    fields |= {b"digest": b"d", b"epoch": b"e", b"what": b"published"}
    for read in (lambda: read_pointer(fields, b"id"), lambda: read_entry(fields)):
        with raises_at_most(StoreError):
            read()
    with raises_at_most(StoreError):
        read_position([b"t", fields[b"serial"], fields[b"version"]])
