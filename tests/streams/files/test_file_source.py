"""A folder of segments: half-written and torn lines, many writers, full segments and full disks."""

import json
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from omdml.errors import FeedbackError, SourceError
from omdml.feedback import decode
from omdml.streams.files.log import OFFSET_BITS
from omdml.streams.files.reader import LENGTH_HEADER
from omdml.streams.files.source import FileSink, FileSource
from omdml.streams.files.tail import MAX_LINE_BYTES
from tests.fault.chaos.breaking.disks import SIZE_MB, small_disk
from tests.support.files.files import EVENT, SEGMENT, Follow, append, drain, read_records, values
from tests.support.forks import FORKS, LIMIT_S


def test_lines_written_by_hand_are_events(folder: Path, follow: Follow) -> None:
    append(folder / SEGMENT, EVENT + b"\n" + EVENT + b"\r\n\n  \n" + EVENT + b"\n")
    records = follow().poll(10, 0)
    assert [decode(record.value) for record in records] == [decode(EVENT)] * 3
    assert {(record.key, record.timestamp, record.headers) for record in records} == {(None, None, ())}
    assert records[0].offset == 1 << OFFSET_BITS


def test_a_line_of_the_sink_is_an_event_to_whoever_reads_the_file(folder: Path) -> None:
    sink = FileSink(folder)
    sink.send(EVENT, "shop")
    sink.close()
    line = (folder / SEGMENT).read_bytes()
    assert decode(line) == decode(EVENT)
    assert json.loads(line)["key"] == "shop"


def test_a_half_written_last_line_waits_for_its_rest(folder: Path, follow: Follow) -> None:
    source = follow()
    append(folder / SEGMENT, EVENT[:20])
    assert source.poll(10, 0.02) == []
    append(folder / SEGMENT, EVENT[20:])
    assert source.poll(10, 0.02) == []
    append(folder / SEGMENT, b"\n" + EVENT[:5])
    assert values(source) == [EVENT]
    ((position, end),) = source.progress().values()
    assert position == end == 1 << OFFSET_BITS | len(EVENT) + 1
    append(folder / SEGMENT, EVENT[5:] + b"\n")
    assert values(source) == [EVENT]


def test_a_line_too_long_for_memory_is_cut_refused_as_oversize_and_passed(folder: Path, follow: Follow) -> None:
    long = b'{"type":"' + b"x" * (MAX_LINE_BYTES + (5 << 20)) + b'"}'
    append(folder / SEGMENT, EVENT + b"\n" + long + b"\n" + EVENT + b"\n")
    before, cut, after = drain(follow())
    assert (before.value, after.value) == (EVENT, EVENT)
    assert len(cut.value) < len(long) / 2
    assert long.startswith(cut.value)
    assert cut.headers == ((LENGTH_HEADER, b"%d" % len(long)),)
    assert after.offset == cut.offset + len(long) + 1
    with pytest.raises(FeedbackError) as refused:
        decode(cut.value)
    assert refused.value.reason == "oversize"


def test_a_start_inside_a_line_goes_on_with_the_next_one(folder: Path, follow: Follow) -> None:
    append(folder / SEGMENT, EVENT + b"\n" + EVENT + b"\n")
    first, second = drain(follow())
    assert drain(follow(start=first.offset + 7, group="other")) == [second]


def test_full_segments_are_followed_by_the_next_one(folder: Path, follow: Follow) -> None:
    source, sink = follow(), FileSink(folder, segment_bytes=300, fsync=True)
    sent = [b'{"n":%d}' % n for n in range(40)]
    for value in sent[:20]:
        sink.send(value)
    assert values(source) == sent[:20]
    for value in sent[20:]:
        sink.send(value)
    # It is larger than a segment, and gets one of its own.
    sink.send(b"x" * 1000)
    sink.close()
    assert values(source) == [*sent[20:], b"x" * 1000]
    sizes = [path.stat().st_size for path in sorted(folder.glob("*.jsonl"))]
    assert len(sizes) > 5
    assert max(sizes[:-1]) <= 300
    ((position, end),) = source.progress().values()
    assert position == end == len(sizes) << OFFSET_BITS | sizes[-1]
    assert [record.value for record in read_records(folder)] == [*sent, b"x" * 1000]


def test_the_unended_last_line_of_a_full_segment_is_whole(folder: Path, follow: Follow) -> None:
    append(folder / SEGMENT, EVENT + b"\n" + EVENT)
    source = follow()
    assert values(source) == [EVENT]
    append(folder / "00000002.jsonl", EVENT + b"\n")
    second, third = drain(source)
    assert (second.value, third.value) == (EVENT, EVENT)
    source.seek(second.partition, second.offset + 1)
    assert drain(source) == [third]


def test_what_another_program_appends_to_a_finished_segment_is_not_read(folder: Path, follow: Follow) -> None:
    # So docs/feedback.md says that only omdml writes into a folder.
    append(folder / SEGMENT, EVENT + b"\n")
    append(folder / "00000002.jsonl", EVENT + b"\n")
    source = follow()
    assert len(drain(source)) == 2
    append(folder / SEGMENT, EVENT + b"\n")
    append(folder / "00000002.jsonl", EVENT + b"\n")
    assert [record.offset >> OFFSET_BITS for record in drain(source)] == [2]


def test_reading_can_begin_at_the_oldest_segment_that_was_kept(folder: Path, follow: Follow) -> None:
    append(folder / "00000007.jsonl", EVENT + b"\n")
    (record,) = drain(follow())
    assert record.offset == 7 << OFFSET_BITS


def write_many(folder: Path, name: bytes) -> None:
    sink = FileSink(folder, segment_bytes=20_000, fsync=False)
    for n in range(300):
        sink.send(b"%s %d " % (name, n) + b"x" * (n * 7 % 500))
    sink.close()


def test_many_writers_interleave_whole_lines_only(folder: Path, follow: Follow) -> None:
    writers = [FORKS.Process(target=write_many, args=(folder, name), daemon=True) for name in (b"a", b"b", b"c")]
    for writer in writers:
        writer.start()
    sink = FileSink(folder, segment_bytes=20_000, fsync=False)

    def send_many() -> None:
        for _ in range(200):
            sink.send(b"t")

    threads = [threading.Thread(target=send_many) for _ in range(2)]
    for thread in threads:
        thread.start()
    source, values_read = follow(), list[bytes]()
    while any(writer.is_alive() for writer in writers) or any(thread.is_alive() for thread in threads):
        values_read += [record.value for record in source.poll(1000, 0.01)]
    sink.close()
    values_read += values(source)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    for name in (b"a", b"b", b"c"):
        mine = [value for value in values_read if value.startswith(name)]
        assert mine == [b"%s %d " % (name, n) + b"x" * (n * 7 % 500) for n in range(300)]
    assert values_read.count(b"t") == 400
    assert len(values_read) == 1300


def test_a_torn_line_of_a_killed_writer_costs_no_other_line(folder: Path, follow: Follow) -> None:
    sink = FileSink(folder)
    sink.send(b'{"n":1}')
    append(folder / SEGMENT, b'{"logged":17900')
    sink.send(b'{"n":2}')
    assert values(follow()) == [b'{"n":1}', b'{"logged":17900', b'{"n":2}']
    append(folder / SEGMENT, b'{"again')
    other = FileSink(folder)
    other.send(b'{"n":3}')
    assert [record.value for record in read_records(folder)][3:] == [b'{"again', b'{"n":3}']
    sink.close()
    other.close()


@contextmanager
def full_after(size: int) -> Iterator[None]:
    """No file of this process may be larger: as if the disk ended there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_a_full_disk_tore_is_a_record_of_its_own_whenever_it_is_read(folder: Path, follow: Follow) -> None:
    sink, source = FileSink(folder), follow()
    sink.send(b'{"n":1}')
    with full_after((folder / SEGMENT).stat().st_size + 50), pytest.raises(SourceError, match="not full"):
        sink.send(b'{"refused":"a line that does not fit"}')
    # By now the source has read the torn piece.
    assert values(source) == [b'{"n":1}']
    with full_after((folder / SEGMENT).stat().st_size), pytest.raises(SourceError, match="not full"):
        sink.send(b'{"refused":"and not one byte more"}')
    sink.send(b'{"n":2}')
    torn, acknowledged = drain(source)
    assert (torn.value[:11], acknowledged.value) == (b'{"refused":', b'{"n":2}')
    with pytest.raises(FeedbackError, match="not application/json"):
        decode(torn.value)
    assert list(read_records(folder))[1:] == drain(follow(group="replay"))[1:] == [torn, acknowledged]
    sink.close()
    with pytest.raises(SourceError, match="after close"):
        sink.send(EVENT)


def test_a_sink_goes_on_after_its_segment_was_removed(folder: Path) -> None:
    sink = FileSink(folder)
    sink.send(EVENT)
    (folder / SEGMENT).unlink()
    sink.send(EVENT)
    sink.close()
    assert [record.value for record in read_records(folder)] == [EVENT]


def read_until_killed(folder: Path, ready: Connection) -> None:
    source = FileSource(folder, "workers")
    source.subscribe(None)
    ready.send("ready")
    signal.pause()


def test_a_second_reader_of_a_group_is_refused_until_the_first_is_killed(folder: Path, follow: Follow) -> None:
    receiver, ready = FORKS.Pipe(duplex=False)
    first = FORKS.Process(target=read_until_killed, args=(folder, ready), daemon=True)
    first.start()
    assert receiver.poll(LIMIT_S)
    with pytest.raises(SourceError, match=f"process {first.pid} already"):
        follow()
    first.kill()
    first.join()
    assert values(follow()) == []


def test_the_identity_is_the_same_for_all_and_new_for_a_new_folder(folder: Path, tmp_path: Path) -> None:
    first = FileSource(folder).partition
    FileSink(folder).close()
    assert FileSource(folder).partition == first
    folder.rename(tmp_path / "old")
    assert FileSource(folder).partition != first
    assert FileSource(tmp_path / "old").partition == first


def test_a_half_line_taken_back_by_its_writer_harms_nothing(folder: Path, follow: Follow) -> None:
    append(folder / SEGMENT, EVENT + b"\n" + b'{"half')
    source = follow()
    assert values(source) == [EVENT]
    os.truncate(folder / SEGMENT, len(EVENT) + 1)
    assert values(source) == []
    append(folder / SEGMENT, EVENT + b"\n" + b'{"half')
    assert values(source) == [EVENT]
    os.truncate(folder / SEGMENT, 2 * len(EVENT) + 2)
    # The source did not look before this line was complete.
    append(folder / SEGMENT, EVENT + b"\n")
    assert values(source) == [EVENT]


def test_a_path_that_cannot_be_a_log_is_a_source_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file" / "folder", tmp_path / "file" / "clicks.jsonl"):
        with pytest.raises(SourceError, match=str(path)):
            FileSink(path)


def test_the_backlog_is_in_bytes_over_all_segments(tmp_path):
    sink = FileSink(tmp_path / "log", segment_bytes=200, fsync=False)
    for number in range(20):
        sink.send(b'{"number": %d}' % number)
    sink.close()
    paths = sorted((tmp_path / "log").glob("*.jsonl"))
    assert len(paths) > 2
    total = sum(path.stat().st_size for path in paths)
    source = FileSource(tmp_path / "log")
    partition = source.partition
    assert source.backlog(source.begin(partition), source.end(partition)) == total
    assert source.backlog(source.begin(partition) + 10, source.end(partition)) == total - 10
    assert source.backlog(source.end(partition), source.end(partition)) == 0


def test_events_that_a_full_disk_refused_are_not_in_the_log(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        sink, accepted, refused = FileSink(disk / "feedback", segment_bytes=1 << 20), list[bytes](), 0
        (disk / "ballast").write_bytes(bytes((SIZE_MB - 3) << 20))
        while refused < 5:
            numbers = range(len(accepted), len(accepted) + 25)
            batch = [b'{"n":%d,"of":"%s"}' % (number, b"x" * 3000) for number in numbers]
            try:
                sink.send_many([(value, "shop") for value in batch])
                accepted += batch
            except SourceError:
                refused += 1
        # Room for a part of a batch, but not for the whole.
        assert [record.value for record in read_records(disk / "feedback")] == accepted
        (disk / "ballast").unlink()
        sink.send(EVENT)
        assert [record.value for record in read_records(disk / "feedback")] == [*accepted, EVENT]
        assert len(list((disk / "feedback").glob("*.jsonl"))) > 2
        sink.close()
