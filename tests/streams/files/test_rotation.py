"""One file that something else rotates: by renaming it, or by copying and truncating it."""

import os
import shutil
import time
from pathlib import Path

import pytest

from omdml.streams.files import rotation
from omdml.streams.files.log import OFFSET_BITS
from omdml.streams.files.reader import LogReader, open_log
from omdml.streams.files.source import FileSink, FileSource
from omdml.streams.protocols.log import Record
from tests.support.files.files import Follow, read_records
from tests.support.files.rotated_files import commit_here, numbers, rotate, write
from tests.support.servers.listeners import Recorder
from tests.support.waiting import until


def test_a_renamed_file_is_finished_before_the_new_one_is_begun(clicks: Path, follow_clicks: Follow) -> None:
    source = follow_clicks()
    write(clicks, 1, 2)
    assert numbers(source) == [1, 2]
    write(clicks, 3)
    rotate(clicks)
    assert numbers(source) == [3]
    write(clicks, 4)
    assert numbers(source) == [4]
    assert list(source.progress().values()) == [(2 << OFFSET_BITS | 8,) * 2]


@pytest.mark.parametrize("suffixed", ["clicks.jsonl.1", "clicks.jsonl-20260101", "clicks-20260101.jsonl"])
def test_a_restart_finishes_a_file_that_was_renamed(clicks: Path, follow_clicks: Follow, suffixed: str) -> None:
    source = follow_clicks()
    write(clicks, 1, 2)
    assert numbers(source) == [1, 2]
    commit_here(source)
    write(clicks, 3)
    clicks.rename(clicks.with_name(suffixed))
    write(clicks, 4)
    assert numbers(follow_clicks()) == [3, 4]


def test_files_rotated_twice_while_nobody_looked_are_read_in_order(clicks: Path, follow_clicks: Follow) -> None:
    source = follow_clicks()
    write(clicks, 1)
    assert numbers(source) == [1]
    commit_here(source)
    for number in (2, 4, 6):
        write(clicks, number, number + 1)
        rotate(clicks)
    write(clicks, 8)
    assert numbers(follow_clicks()) == [2, 3, 4, 5, 6, 7, 8]


def test_files_rotated_before_the_first_start_belong_to_the_log(clicks: Path, follow_clicks: Follow) -> None:
    for number in (1, 2):
        write(clicks, number)
        rotate(clicks)
    write(clicks, 3)
    assert [int(record.value[5:-1]) for record in read_records(clicks)] == [1, 2, 3]
    assert numbers(follow_clicks()) == [1, 2, 3]


def test_files_of_other_names_do_not_belong_to_the_log(clicks: Path, follow_clicks: Follow) -> None:
    write(clicks, 1)
    for name in ("clicks.jsonl.bak", "clicks.jsonl.1.gz", "clicks-more.jsonl", "other.jsonl", "clicks.jsonl.1.tmp"):
        write(clicks.with_name(name), 9)
    assert numbers(follow_clicks()) == [1]


def test_a_copied_and_truncated_file_is_finished_in_its_copy(clicks: Path, follow_clicks: Follow) -> None:
    source = follow_clicks()
    write(clicks, 1, 2)
    assert numbers(source) == [1, 2]
    write(clicks, 3)
    shutil.copy2(clicks, clicks.with_name("clicks.jsonl.1"))
    os.truncate(clicks, 0)
    assert numbers(source) == [3]
    write(clicks, 4, 5)
    assert numbers(source) == [4, 5]


def test_a_restart_finds_the_copy_of_a_truncated_file(clicks: Path, follow_clicks: Follow) -> None:
    source = follow_clicks()
    write(clicks, 1, 2)
    assert numbers(source) == [1, 2]
    commit_here(source)
    write(clicks, 3)
    shutil.copy2(clicks, clicks.with_name("clicks.jsonl.1"))
    clicks.write_bytes(b"")
    write(clicks, 4, 5, 6, 7)
    assert numbers(follow_clicks()) == [3, 4, 5, 6, 7]


def test_a_new_file_may_begin_with_the_same_line_as_old_ones(clicks: Path, follow_clicks: Follow) -> None:
    source = follow_clicks()
    write(clicks, 0, 1)
    assert numbers(source) == [0, 1]
    rotate(clicks)
    write(clicks, 0, 2)
    assert numbers(source) == [0, 2]
    commit_here(source)
    rotate(clicks)
    clicks.with_name("clicks.jsonl.2").unlink()
    write(clicks, 0, 3)
    assert numbers(follow_clicks()) == [0, 3]


def test_a_writer_that_goes_on_in_a_renamed_file_is_waited_for(clicks: Path, follow_clicks: Follow) -> None:
    source = follow_clicks()
    write(clicks, 1)
    assert numbers(source) == [1]
    rotate(clicks)
    old = clicks.with_name("clicks.jsonl.1")
    os.utime(old)
    write(clicks, 3)
    assert numbers(source) == []
    write(old, 2)
    assert numbers(source) == [2, 3]


def test_after_a_clock_was_set_back_a_rotated_file_is_finished_all_the_same(clicks: Path) -> None:
    log = open_log(clicks, quiet_s=0.05)
    reader = LogReader(log)
    write(clicks, 1, 2)
    assert len(reader.take(10)) == 2
    rotate(clicks)
    future = time.time() + 3600
    os.utime(clicks.with_name("clicks.jsonl.1"), (future, future))
    write(clicks, 3)
    results: list[Record] = []
    until(lambda: results.extend(reader.take(10)) or len(results) == 1)
    assert results[0].value == b'{"n":3}'
    reader.close()


def test_a_file_that_is_older_by_a_clock_set_back_is_not_passed_over(clicks: Path, follow_clicks: Follow) -> None:
    write(clicks, 10, 11)
    source = follow_clicks()
    assert numbers(source) == [10, 11]
    commit_here(source)
    # Given two rotations while nobody looked, and a clock that was set back before the first one
    rotate(clicks)
    write(clicks, 2, 3)
    rotate(clicks)
    write(clicks, 4)
    # I expect every event once, now and after a restart.
    source = follow_clicks()
    assert numbers(source) == [2, 3, 4]
    commit_here(source)
    assert numbers(follow_clicks()) == []


def test_an_older_file_beside_the_log_is_read_after_the_next_rotation(clicks: Path, follow_clicks: Follow) -> None:
    source = follow_clicks()
    write(clicks, 3)
    assert numbers(source) == [3]
    commit_here(source)
    # Somebody unpacks what was rotated before the log was read for the first time.
    write(clicks.with_name("clicks.jsonl.9"), 1, 2)
    for number in (4, 5):
        source = follow_clicks()
        write(clicks, number)
        assert numbers(source) == [number]
        commit_here(source)
    rotate(clicks)
    write(clicks, 6)
    source = follow_clicks()
    assert numbers(source) == [1, 2, 6]


def test_files_that_are_renamed_while_they_are_looked_for_are_found(
    clicks: Path, follow_clicks: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = follow_clicks()
    write(clicks, 1)
    rotate(clicks)
    write(clicks, 2)
    rotate(clicks)
    write(clicks, 3)
    rotations = iter([4])
    log_file_at = rotation.log_file_at

    def look_amid_a_rotation(path: Path) -> rotation.LogFile | None:
        if path.name == "clicks.jsonl.2" and (number := next(rotations, None)):
            rotate(clicks)
            write(clicks, number)
        return log_file_at(path)

    monkeypatch.setattr(rotation, "log_file_at", look_amid_a_rotation)
    assert numbers(source) == [1, 2, 3, 4]


def test_a_rotated_file_that_ends_without_a_newline_is_read_to_its_end(clicks: Path, follow_clicks: Follow) -> None:
    source = follow_clicks()
    write(clicks, 1)
    with clicks.open("ab") as file:
        file.write(b'{"n":2}')
    assert numbers(source) == [1]
    os.utime(clicks, (1e9, 1e9))
    rotate(clicks)
    write(clicks, 3)
    assert numbers(source) == [2, 3]


def test_a_log_that_is_a_link_to_the_file_of_today_is_read_once(clicks: Path, follow_clicks: Follow) -> None:
    first, second = (clicks.with_name(f"clicks-2026010{day}.jsonl") for day in (1, 2))
    write(first, 1, 2)
    clicks.symlink_to(first.name)
    source = follow_clicks()
    assert numbers(source) == [1, 2]
    write(first, 3)
    assert numbers(source) == [3]
    # The next day the link leads to another file.
    write(second, 4)
    clicks.unlink()
    clicks.symlink_to(second.name)
    assert numbers(source) == [4]
    commit_here(source)
    write(second, 5)
    assert numbers(follow_clicks()) == [5]


def test_a_file_with_a_second_name_is_read_once(clicks: Path, follow_clicks: Follow) -> None:
    write(clicks, 1)
    rotate(clicks)
    write(clicks, 2)
    for name in ("clicks.jsonl", "clicks.jsonl.1"):
        (clicks.parent / f"{name}.20260101").hardlink_to(clicks.parent / name)
    assert numbers(follow_clicks()) == [1, 2]


def test_the_sink_follows_a_rename(clicks: Path) -> None:
    # This option is for folders.
    sink = FileSink(clicks, segment_bytes=1)
    sink.send(b'{"n":1}')
    sink.send(b'{"n":2}')
    rotate(clicks)
    sink.send(b'{"n":3}')
    sink.close()
    assert [record.value for record in read_records(clicks)] == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    assert clicks.read_bytes().count(b"\n") == 1


def test_a_log_carried_to_another_disk_goes_on(clicks: Path, follow_clicks: Follow, tmp_path: Path) -> None:
    source = follow_clicks()
    write(clicks, 1)
    rotate(clicks)
    write(clicks, 2, 3)
    assert numbers(source) == [1, 2, 3]
    commit_here(source)
    write(clicks, 4)
    shutil.copytree(tmp_path, tmp_path / "new")
    moved = FileSource(tmp_path / "new" / clicks.name)
    assert moved.partition == source.partition
    moved.subscribe(Recorder())
    assert numbers(moved) == [4]
    moved.close()
