"""What a worker logs about dead letters, what they cost it, and how many of them are kept in files."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from omdml.errors import FeedbackError
from omdml.streams.files import segments
from omdml.streams.files.segments import SegmentedLog
from omdml.streams.files.source import FileSink
from omdml.streams.letters import Letter, read_book, read_letters
from omdml.streams.protocols.log import Partition, Record
from omdml.workers.configuration.config import FileLog
from omdml.workers.events import decoding
from omdml.workers.events.decoding import Refusal
from omdml.workers.events.refusal_log import EVERY_S, RefusalLog
from omdml.workers.wiring.dead_letters import newest_letters, open_letters
from omdml.workers.wiring.dead_letters import read_letters as read_all_letters
from tests.support.files.files import read_records
from tests.support.worlds import World, events, run_until_idle

PARTITION = Partition("t", 3)


def refused(offset: int, reason: str) -> Refusal:
    return Refusal(Record(PARTITION, offset, b"{}"), FeedbackError(f"no good at {offset}", reason=reason), "shop")


def about_letters(entries: list[dict]) -> list[dict]:
    """The log entries that report dead letters."""
    return [entry for entry in entries if entry["event"] == "dead_letters"]


def test_letters_are_reported_at_once_then_a_minute_later_by_reason():
    log = RefusalLog(iter([0.0, EVERY_S - 1, EVERY_S]).__next__)
    with structlog.testing.capture_logs() as entries:
        log.note(refused(5, "not_json"))
        log.tell()
        for offset in (7, 8, 9):
            log.note(refused(offset, "wrong_partition" if offset > 7 else "not_json"))
        log.tell()
        log.tell()
    first, second = about_letters(entries)
    assert (first["count"], first["reasons"], first["first"]) == (1, "1 not_json", "3/5")
    assert "omdml letters explain" in first["hint"]
    assert (second["count"], second["reasons"], second["first"]) == (3, "2 wrong_partition, 1 not_json", "3/7")
    assert (second["model"], second["reason"]) == ("shop", "no good at 7")
    assert "log.partitioner" in second["hint"]


def test_a_worker_says_how_many_letters_it_wrote(tmp_path):
    world = World(tmp_path)
    world.send(b"no JSON", *events(3), *events(2, model="nobody"))
    worker = world.worker()
    with structlog.testing.capture_logs() as entries:
        run_until_idle(worker)
        worker._close()
    lines = about_letters(entries)
    assert sum(line["count"] for line in lines) == 3
    assert "2 unknown_model" in lines[0]["reasons"]


def test_a_refused_event_is_decoded_once(tmp_path, monkeypatch):
    decoded = []

    def counted(payload, content_type=decoding.JSON, decode=decoding.decode):
        decoded.append(payload)
        return decode(payload, content_type)

    monkeypatch.setattr(decoding, "decode", counted)
    world = World(tmp_path)
    gone = next(events(1)).replace(b'"query":"i', b'"query":"gone')
    world.send(b"no JSON", gone, *events(1, model="nobody"))
    worker = world.worker()
    run_until_idle(worker)
    assert len(decoded) == 3
    value = worker.services.metrics.registry.get_sample_value
    counts = {"model": "shop", "kind": "triplet", "outcome": "refused"}
    assert value("omdml_worker_events_total", counts) == 1
    assert value("omdml_worker_events_total", {**counts, "model": "unknown", "kind": "unknown"}) == 1


def test_an_unknown_item_does_not_change_what_is_learned_beside_it(tmp_path):
    sound, mixed = World(tmp_path / "a"), World(tmp_path / "b")
    sound_events = list(events(40))
    gone = sound_events[7].replace(b'"irrelevant":"i', b'"irrelevant":"gone')
    sound.send(*sound_events)
    mixed.send(*sound_events[:20], gone, *sound_events[20:], gone)
    states = []
    for world in (sound, mixed):
        worker = world.worker()
        run_until_idle(worker)
        next(iter(worker.partitions.values())).saving.save()
        states.append(world.store.peek("shop").state)
    assert states[0] == states[1]
    letters = list(read_letters(record for part in mixed.graves.partitions for record in mixed.graves.read(part, 0, 9)))
    assert [(letter.offset, letter.reason) for letter in letters] == [(20, "unknown_item"), (41, "unknown_item")]


def test_the_oldest_letters_go_when_there_are_too_many(tmp_path):
    with structlog.testing.capture_logs() as entries:
        letters = open_letters(FileLog(letters=str(tmp_path), letters_keep_mb=0.04))
        for offset in range(1000):
            letters.add(*refused(offset, "not_json")[:3])
        letters.close()
    offsets = [letter.offset for letter in read_letters(read_records(tmp_path))]
    assert sum(path.stat().st_size for path in tmp_path.glob("*.jsonl")) <= 40_000
    assert offsets == list(range(offsets[0], 1000))
    assert len(offsets) > 100
    thinned = [entry for entry in entries if entry["event"] == "log_thinned"]
    assert thinned
    assert "0.04 MB" in thinned[0]["reason"]


@pytest.mark.parametrize(
    "opening",
    [(SegmentedLog, "open"), (segments, "open_regular")],
    ids=["before the look at the folder", "between the look and the opening of a file"],
)
@pytest.mark.parametrize("read", [read_all_letters, lambda log: read_book(newest_letters(log).records)])
def test_letters_can_be_read_while_the_oldest_are_deleted(tmp_path, monkeypatch, read, opening):
    log = FileLog(letters=str(tmp_path), letters_keep_mb=0.04)
    letters = open_letters(log)

    def bury(first):
        letters.add_many(refused(offset, "not_json")[:3] for offset in range(first, first + 500))
        letters.flush()

    bury(0)
    oldest, open_file, deleted = min(tmp_path.glob("*.jsonl")), getattr(*opening), []

    def deleted_before(*arguments):
        if not deleted:
            deleted.append(oldest)
            bury(500)
        return open_file(*arguments)

    monkeypatch.setattr(*opening, deleted_before)
    book = read(log)
    letters.close()
    assert deleted
    assert not oldest.exists()
    assert max(letter.offset for letter in book.letters.values()) == 999


def test_two_who_write_to_one_folder_may_both_delete_its_oldest_files(tmp_path, monkeypatch):
    log = FileLog(letters=str(tmp_path), letters_keep_mb=0.04)
    letters = open_letters(log)
    letters.add_many(refused(offset, "not_json")[:3] for offset in range(100))
    letters.flush()
    unlink = Path.unlink
    # The other writer deletes each file first.
    monkeypatch.setattr(Path, "unlink", lambda path: (unlink(path), unlink(path)))
    letters.add_many(refused(offset, "not_json")[:3] for offset in range(100, 1000))
    letters.close()
    assert sum(path.stat().st_size for path in tmp_path.glob("*.jsonl")) <= 40_000


def test_many_lines_at_once_lie_as_if_sent_one_by_one(tmp_path):
    values = [b'{"number":%d}' % number for number in range(50)]
    singly, together = FileSink(tmp_path / "one", segment_bytes=500), FileSink(tmp_path / "many", segment_bytes=500)
    for value in values:
        singly.send(value, "shop")
    together.send_many([(value, "shop") for value in values])
    sizes = [[path.stat().st_size for path in sorted((tmp_path / name).glob("*.jsonl"))] for name in ("one", "many")]
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) > 3
    assert [record.value for record in read_records(tmp_path / "many")] == values


def test_a_letter_near_the_limit_is_cut_and_one_below_it_is_whole():
    error = FeedbackError("no JSON", reason="not_json")
    # JSON writes six bytes for each of these.
    for value, whole in ((b"\x01" * 3000, True), (b"\x01" * 4000, False)):
        letter = Letter.of(Record(PARTITION, 1, value), error, limit=20_000)
        assert (letter.digest is None) == whole
        assert len(letter.encode()) <= 20_000
