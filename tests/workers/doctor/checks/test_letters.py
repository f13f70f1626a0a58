"""What the doctor says of dead letters, and what operators do about them."""

from __future__ import annotations

import json
import time

from click.testing import CliRunner

from omdml.streams.files.newest import newest_records
from omdml.streams.files.source import FileSink
from omdml.streams.letters import Resent, read_book
from omdml.workers.cli import main
from omdml.workers.doctor.checks.letters import FRESH_S, unsent
from omdml.workers.doctor.findings import Level
from tests.support.installations import UNKNOWN, problem


def test_letters_that_were_not_sent_again_are_counted_by_reason_with_the_newest(shop):
    shop.tell(UNKNOWN, b"{broken", UNKNOWN)
    shop.learn()
    text = problem(shop, "letters", Level.WARNING)
    assert "3 events (2 unknown_item, 1 not_json) could not be learned" in text
    assert "nobody sent them again or dismissed them" in text
    newest = max(letter["offset"] for letter in shop_letters(shop))
    assert f"omdml letters explain 0/{newest}" in text
    assert "omdml letters list --open" in text
    assert "omdml letters resend" in text


def shop_letters(shop):
    """The letters as they lie in their files."""
    return [json.loads(record.value) for record in newest_records(shop.folder / "letters", 1 << 20).records]


def test_letters_that_were_sent_again_are_no_longer_open(shop):
    shop.tell(UNKNOWN)
    shop.learn()
    (letter,) = shop_letters(shop)
    mark = Resent(((letter["partition"][0], letter["partition"][1]), letter["offset"])).encode()
    sink = FileSink(shop.folder / "letters")
    sink.send(mark, "shop")
    sink.close()
    assert problem(shop, "letters", Level.OK) == "no dead letter is open"


def test_a_letter_that_nobody_can_mend_is_dismissed_and_no_longer_counted(shop):
    shop.tell(b"{broken", UNKNOWN)
    shop.learn()
    printed = CliRunner().invoke(main, ["letters", "dismiss", "-c", str(shop.file)])
    assert (printed.exit_code, "which letters?" in printed.output) == (2, True)
    assert shop.omdml("letters", "dismiss", "--reason", "not_json") == "1 letter dismissed, 1 still open"
    assert "1 event (1 unknown_item) could not be learned" in problem(shop, "letters", Level.WARNING)
    listed = shop.omdml("letters", "list")
    assert "not_json dismissed {broken" in listed
    assert "1 still open" in listed
    assert "not_json" not in shop.omdml("letters", "list", "--open")
    (name,) = (f"0/{letter['offset']}" for letter in shop_letters(shop) if letter.get("reason") == "unknown_item")
    assert shop.omdml("letters", "dismiss", name) == "1 letter dismissed, 0 still open"
    assert problem(shop, "letters", Level.OK) == "no dead letter is open"
    assert "everything adds up" in shop.omdml("doctor", "--audit")


def test_letters_that_could_not_be_read_in_time_are_not_reported_as_none():
    no_letters = read_book([])
    assert unsent(no_letters, True, 0.0) == "no dead letters"
    (remark,) = unsent(no_letters, False, 0.0)
    assert remark.level is Level.WARNING
    assert remark.text.startswith("not counted")
    assert str(unsent(no_letters, False, 0.0, hasty=True)).startswith("not counted")


def test_an_empty_list_says_whether_there_are_other_letters(shop):
    shop.tell(UNKNOWN, b"{broken")
    shop.learn()
    listed = shop.omdml("letters", "list", "--model", "nobody", "--open")
    assert "no open dead letter for the model 'nobody', of 2 dead letters in all" in listed


def test_letters_of_a_log_in_files_are_listed_in_the_order_of_their_events(shop):
    shop.tell(UNKNOWN, b"{first", UNKNOWN, b"{last")
    shop.learn()
    listed = shop.omdml("letters", "list")
    assert listed.index("{first") < listed.index("{last")
    lines = CliRunner().invoke(main, ["letters", "list", "--json", "-c", str(shop.file)]).output.splitlines()
    offsets = [json.loads(line)["offset"] for line in lines]
    assert len(offsets) == 4
    assert offsets == sorted(offsets)


def test_letters_older_than_a_week_are_reported_and_are_no_warning(shop):
    shop.tell(UNKNOWN)
    shop.learn()
    book = read_book(newest_records(shop.folder / "letters", 1 << 20).records)
    assert not isinstance(unsent(book, True, time.time()), str)
    assert "1 event (1 unknown_item) was neither sent again nor dismissed; the newest is of 20" in unsent(
        book, True, time.time() + FRESH_S + 60
    )


def test_of_many_letters_only_the_newest_are_read_and_that_is_reported(tmp_path):
    sink = FileSink(tmp_path / "letters", segment_bytes=4000, fsync=False)
    for number in range(200):
        sink.send(b"%0100d" % number)
    sink.close()
    records, whole = newest_records(tmp_path / "letters", 10_000)
    assert not whole
    assert [int(record.value) for record in records] == list(range(200 - len(records), 200))
    assert 5_000 < sum(len(record.value) for record in records) <= 10_000
    assert newest_records(tmp_path / "letters", 1 << 20) == (
        newest_records(tmp_path / "letters", 1 << 20).records,
        True,
    )
    assert newest_records(tmp_path / "nothing", 10) == ([], True)
