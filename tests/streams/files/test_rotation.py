"""One file that something else rotates: by renaming it, or by copying and truncating it."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omdml.errors import GapError, SourceError
from omdml.streams.files import rotation
from omdml.streams.files.log import OFFSET_BITS
from omdml.streams.files.reader import LogReader, open_log
from omdml.streams.files.source import FileSink, FileSource
from omdml.streams.protocols.log import CommitResult, Record
from tests.integration.waiting import until
from tests.support.files import read_records
from tests.support.forks import FORKS, LIMIT_S
from tests.support.listeners import Recorder

Follow = Callable[[], FileSource]


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    return tmp_path / "clicks.jsonl"


@pytest.fixture
def follow(clicks: Path) -> Iterator[Follow]:
    sources: list[FileSource] = []

    def subscribed() -> FileSource:
        sources.append(FileSource(clicks))
        sources[-1].subscribe(Recorder())
        return sources[-1]

    yield subscribed
    for source in sources:
        source.close()


def write(path: Path, *numbers: int) -> None:
    """Append events; the file was left alone since long ago, files with higher numbers since not so long."""
    with path.open("ab") as file:
        file.write(b"".join(b'{"n":%d}\n' % number for number in numbers))
    os.utime(path, (1e9 + numbers[-1],) * 2)


def numbers(source: FileSource) -> list[int]:
    results = []
    while records := source.poll(3, 0):
        results += [int(record.value[5:-1]) for record in records]
    return results


def commit_here(source: FileSource) -> None:
    ((partition, (position, _)),) = source.progress().items()
    assert source.commit({partition: position}) is CommitResult.RECORDED
    source.close()


def rotate(path: Path) -> None:
    """Rotate as logrotate does: .1 becomes .2, the file becomes .1."""
    for number in (2, 1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.rename(path.with_name(f"{path.name}.{number + 1}"))
    path.rename(path.with_name(path.name + ".1"))


def test_a_renamed_file_is_finished_before_the_new_one_is_begun(clicks: Path, follow: Follow) -> None:
    source = follow()
    write(clicks, 1, 2)
    assert numbers(source) == [1, 2]
    write(clicks, 3)
    rotate(clicks)
    assert numbers(source) == [3]
    write(clicks, 4)
    assert numbers(source) == [4]
    assert list(source.progress().values()) == [(2 << OFFSET_BITS | 8,) * 2]


@pytest.mark.parametrize("suffixed", ["clicks.jsonl.1", "clicks.jsonl-20260101", "clicks-20260101.jsonl"])
def test_a_restart_finds_a_renamed_file_again_and_finishes_it(clicks: Path, follow: Follow, suffixed: str) -> None:
    source = follow()
    write(clicks, 1, 2)
    assert numbers(source) == [1, 2]
    commit_here(source)
    write(clicks, 3)
    clicks.rename(clicks.with_name(suffixed))
    write(clicks, 4)
    assert numbers(follow()) == [3, 4]


def test_files_rotated_twice_while_nobody_looked_are_read_in_order(clicks: Path, follow: Follow) -> None:
    source = follow()
    write(clicks, 1)
    assert numbers(source) == [1]
    commit_here(source)
    for number in (2, 4, 6):
        write(clicks, number, number + 1)
        rotate(clicks)
    write(clicks, 8)
    assert numbers(follow()) == [2, 3, 4, 5, 6, 7, 8]


def test_files_rotated_before_the_first_start_belong_to_the_log(clicks: Path, follow: Follow) -> None:
    for number in (1, 2):
        write(clicks, number)
        rotate(clicks)
    write(clicks, 3)
    assert [int(record.value[5:-1]) for record in read_records(clicks)] == [1, 2, 3]
    assert numbers(follow()) == [1, 2, 3]


def test_files_of_other_names_do_not_belong_to_the_log(clicks: Path, follow: Follow) -> None:
    write(clicks, 1)
    for name in ("clicks.jsonl.bak", "clicks.jsonl.1.gz", "clicks-more.jsonl", "other.jsonl", "clicks.jsonl.1.tmp"):
        write(clicks.with_name(name), 9)
    assert numbers(follow()) == [1]


def test_a_copied_and_truncated_file_is_finished_in_its_copy(clicks: Path, follow: Follow) -> None:
    source = follow()
    write(clicks, 1, 2)
    assert numbers(source) == [1, 2]
    write(clicks, 3)
    shutil.copy2(clicks, clicks.with_name("clicks.jsonl.1"))
    os.truncate(clicks, 0)
    assert numbers(source) == [3]
    write(clicks, 4, 5)
    assert numbers(source) == [4, 5]


def test_a_restart_finds_the_copy_of_a_truncated_file(clicks: Path, follow: Follow) -> None:
    source = follow()
    write(clicks, 1, 2)
    assert numbers(source) == [1, 2]
    commit_here(source)
    write(clicks, 3)
    shutil.copy2(clicks, clicks.with_name("clicks.jsonl.1"))
    clicks.write_bytes(b"")
    write(clicks, 4, 5, 6, 7)
    assert numbers(follow()) == [3, 4, 5, 6, 7]


def test_a_new_file_may_begin_with_the_same_line_as_old_ones(clicks: Path, follow: Follow) -> None:
    source = follow()
    write(clicks, 0, 1)
    assert numbers(source) == [0, 1]
    rotate(clicks)
    write(clicks, 0, 2)
    assert numbers(source) == [0, 2]
    commit_here(source)
    rotate(clicks)
    clicks.with_name("clicks.jsonl.2").unlink()
    write(clicks, 0, 3)
    assert numbers(follow()) == [0, 3]


def test_a_writer_that_goes_on_in_the_renamed_file_for_a_moment_is_waited_for(clicks: Path, follow: Follow) -> None:
    source = follow()
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


def test_a_file_that_is_older_by_a_clock_set_back_is_not_passed_over(clicks: Path, follow: Follow) -> None:
    write(clicks, 10, 11)
    source = follow()
    assert numbers(source) == [10, 11]
    commit_here(source)
    # Given two rotations while nobody looked, and a clock that was set back before the first one
    rotate(clicks)
    write(clicks, 2, 3)
    rotate(clicks)
    write(clicks, 4)
    # I expect every event once, now and after a restart.
    source = follow()
    assert numbers(source) == [2, 3, 4]
    commit_here(source)
    assert numbers(follow()) == []


def test_an_older_file_beside_the_log_is_read_after_the_next_rotation(clicks: Path, follow: Follow) -> None:
    source = follow()
    write(clicks, 3)
    assert numbers(source) == [3]
    commit_here(source)
    # Somebody unpacks what was rotated before the log was read for the first time.
    write(clicks.with_name("clicks.jsonl.9"), 1, 2)
    for number in (4, 5):
        source = follow()
        write(clicks, number)
        assert numbers(source) == [number]
        commit_here(source)
    rotate(clicks)
    write(clicks, 6)
    source = follow()
    assert numbers(source) == [1, 2, 6]


def test_files_that_are_renamed_while_they_are_looked_for_are_found(
    clicks: Path, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = follow()
    write(clicks, 1)
    rotate(clicks)
    write(clicks, 2)
    rotate(clicks)
    write(clicks, 3)
    rotations = iter([4])
    look = rotation.look

    def look_amid_a_rotation(path: Path) -> rotation.LogFile | None:
        if path.name == "clicks.jsonl.2" and (number := next(rotations, None)):
            rotate(clicks)
            write(clicks, number)
        return look(path)

    monkeypatch.setattr(rotation, "look", look_amid_a_rotation)
    assert numbers(source) == [1, 2, 3, 4]


def test_a_rotated_file_that_ends_without_a_newline_is_read_to_its_end(clicks: Path, follow: Follow) -> None:
    source = follow()
    write(clicks, 1)
    with clicks.open("ab") as file:
        file.write(b'{"n":2}')
    assert numbers(source) == [1]
    os.utime(clicks, (1e9, 1e9))
    rotate(clicks)
    write(clicks, 3)
    assert numbers(source) == [2, 3]


def test_the_sink_follows_a_rename(clicks: Path) -> None:
    sink = FileSink(clicks, segment_bytes=1)  # which is for folders
    sink.send(b'{"n":1}')
    sink.send(b'{"n":2}')
    rotate(clicks)
    sink.send(b'{"n":3}')
    sink.close()
    assert [record.value for record in read_records(clicks)] == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    assert clicks.read_bytes().count(b"\n") == 1


def test_a_log_carried_to_another_disk_goes_on(clicks: Path, follow: Follow, tmp_path: Path) -> None:
    source = follow()
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


def test_a_file_truncated_without_a_copy_is_a_gap_then_and_after_a_restart(clicks: Path, follow: Follow) -> None:
    source = follow()
    write(clicks, 1, 2)
    assert numbers(source) == [1, 2]
    commit_here(source)
    source = follow()
    assert numbers(source) == []
    clicks.write_bytes(b"")
    with pytest.raises(GapError, match=r"ends at byte 0|neither in that file"):
        source.poll(1, 0)
    source.close()
    write(clicks, 3, 4, 5, 6)
    with pytest.raises(GapError, match="neither in that file nor in a rotated one"):
        follow().poll(1, 0)


def test_after_a_gap_the_beginning_is_what_is_left_under_higher_offsets(clicks: Path, follow: Follow) -> None:
    source = follow()
    write(clicks, 1, 2)
    assert numbers(source) == [1, 2]
    commit_here(source)
    clicks.write_bytes(b"")
    write(clicks, 3)
    (record,) = read_records(clicks)
    assert record.offset == 2 << OFFSET_BITS


def test_a_rotated_file_removed_or_compressed_before_it_was_read_is_a_gap(clicks: Path, follow: Follow) -> None:
    source = follow()
    write(clicks, 1)
    assert numbers(source) == [1]
    write(clicks, 2)
    commit_here(source)
    rotate(clicks)
    clicks.with_name("clicks.jsonl.1").rename(clicks.with_name("clicks.jsonl.1.gz"))
    write(clicks, 3)
    with pytest.raises(GapError, match="delaycompress"):
        follow().poll(1, 0)


def test_a_ledger_line_torn_by_a_crash_is_written_again(clicks: Path, follow: Follow) -> None:
    write(clicks, 1)
    source = follow()
    assert numbers(source) == [1]
    ledger = clicks.with_name("clicks.jsonl.id")
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[:-30])
    rotate(clicks)
    write(clicks, 2)
    assert numbers(source) == [2]
    assert ledger.read_bytes().startswith(whole)
    assert ledger.read_bytes().count(b"\n") == 3


def test_what_a_power_cut_left_at_the_end_of_the_ledger_is_cut_off(clicks: Path, follow: Follow) -> None:
    write(clicks, 1)
    source = follow()
    assert numbers(source) == [1]
    commit_here(source)
    ledger = clicks.with_name("clicks.jsonl.id")
    whole = ledger.read_bytes()
    ledger.write_bytes(whole + bytes(20) + b"\n\xff garbage\n")
    write(clicks, 2)
    assert numbers(follow()) == [2]
    assert ledger.read_bytes() == whole


def test_a_ledger_that_is_damaged_in_its_middle_says_what_to_do(clicks: Path, follow: Follow) -> None:
    write(clicks, 1)
    source = follow()
    assert numbers(source) == [1]
    commit_here(source)
    ledger = clicks.with_name("clicks.jsonl.id")
    first, second = ledger.read_bytes().split(b"\n")[:2]
    ledger.write_bytes(b"\n".join([first, b"garbage", second, b""]))
    with pytest.raises(SourceError, match=r"clicks\.jsonl\.id: line 2 is damaged"):
        follow().poll(1, 0)


# Other programs that append to the file, as docs/feedback.md allows it


def append_many(path: Path, name: bytes) -> None:
    """A program that knows nothing of omdml or its lock: one write for each line, to a file opened for appending."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in range(300):
        os.write(descriptor, b"%s %d %s\n" % (name, number, b"x" * (number * 7 % 500)))
    os.close(descriptor)


def test_other_programs_may_append_whole_lines_beside_a_sink_without_a_lock(clicks: Path, follow: Follow) -> None:
    writers = [FORKS.Process(target=append_many, args=(clicks, name), daemon=True) for name in (b"a", b"b")]
    for writer in writers:
        writer.start()
    sink, source, values = FileSink(clicks, fsync=False), follow(), list[bytes]()
    for number in range(300):
        sink.send(b"c %d " % number)
        values += [record.value for record in source.poll(1000, 0)]
    for writer in writers:
        writer.join(LIMIT_S)
    sink.close()
    while records := source.poll(1000, 0.01):
        values += [record.value for record in records]
    assert [writer.exitcode for writer in writers] == [0, 0]
    for name in (b"a", b"b", b"c"):
        long = 0 if name == b"c" else 7
        mine = [value for value in values if value.startswith(name)]
        assert mine == [b"%s %d %s" % (name, number, b"x" * (number * long % 500)) for number in range(300)]
    assert len(values) == 900


def test_a_line_of_another_program_is_cut_in_two_if_a_sink_comes_before_its_end(clicks: Path, follow: Follow) -> None:
    def append(data: bytes) -> list[bytes]:
        with clicks.open("ab") as file:
            file.write(data)
        return [record.value for record in source.poll(10, 0)]

    sink, source = FileSink(clicks), follow()
    assert append(b'{"n":') == []
    assert append(b"1}\n") == [b'{"n":1}']
    assert append(b'{"n":') == []
    sink.send(b'{"n":2}')
    assert append(b"3}\n") == [b'{"n":', b'{"n":2}', b"3}"]
    sink.close()
