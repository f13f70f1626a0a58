"""What a group committed no longer fits the folder: a gap, a folder that is away, a damaged commit."""

import os
import tracemalloc
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from omdml.errors import GapError, SourceError
from omdml.streams.files.log import OFFSET_BITS
from omdml.streams.files.source import FileSink
from omdml.streams.protocols.log import CommitResult
from tests.support.files.files import EVENT, SEGMENT, Follow, append, drain, values


def committed_after_two_of_three(folder: Path, follow: Follow) -> None:
    append(folder / SEGMENT, b"".join(b'{"n":%d}\n' % n for n in range(3)))
    source = follow()
    records = drain(source)
    assert source.commit({records[2].partition: records[2].offset}) is CommitResult.RECORDED
    source.close()


def test_a_segment_that_shrank_below_the_commit_is_a_gap(folder: Path, follow: Follow) -> None:
    committed_after_two_of_three(folder, follow)
    os.truncate(folder / SEGMENT, 9)
    source = follow()
    for _ in range(2):
        with pytest.raises(GapError, match=r"ends at byte 9.*--accept-gap"):
            source.poll(1, 0)


def test_a_segment_with_another_first_line_is_a_gap(folder: Path, follow: Follow) -> None:
    committed_after_two_of_three(folder, follow)
    (folder / SEGMENT).write_bytes(b'{"m":0}\n' * 10)
    with pytest.raises(GapError, match="first line"):
        follow().poll(1, 0)


def test_after_an_accepted_gap_the_group_goes_on_from_the_beginning(folder: Path, follow: Follow) -> None:
    committed_after_two_of_three(folder, follow)
    (folder / SEGMENT).write_bytes(b'{"m":0}\n{"m":1}\n')
    source = follow(start=1 << OFFSET_BITS)
    first, second = drain(source)
    assert source.commit({second.partition: second.offset}) is CommitResult.RECORDED
    source.close()
    assert drain(follow()) == [second]
    assert first.value == b'{"m":0}'


def test_a_missing_segment_is_a_gap(folder: Path, follow: Follow) -> None:
    committed_after_two_of_three(folder, follow)
    (folder / SEGMENT).rename(folder / "00000003.jsonl")
    with pytest.raises(GapError, match=r"00000001.jsonl is missing"):
        follow().poll(1, 0)


def test_a_segment_missing_between_others_is_a_gap(folder: Path, follow: Follow) -> None:
    committed_after_two_of_three(folder, follow)
    append(folder / "00000003.jsonl", EVENT + b"\n")
    with pytest.raises(GapError, match=r"00000002.jsonl is missing"):
        follow().poll(1, 0)


def test_a_stray_file_with_a_high_number_is_a_gap_that_takes_little_memory(folder: Path, follow: Follow) -> None:
    append(folder / SEGMENT, EVENT)
    # Such as a copy that has the day in its name.
    (folder / "20261128.jsonl").write_bytes(EVENT)
    source = follow()
    tracemalloc.start()
    try:
        with pytest.raises(GapError, match=r"00000002\.jsonl is missing"):
            drain(source)
        assert source.backlog(1 << OFFSET_BITS, 20261128 << OFFSET_BITS) == 0
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_commit_made_in_a_log_that_was_since_made_again_is_a_gap(folder: Path, follow: Follow) -> None:
    committed_after_two_of_three(folder, follow)
    (folder / "log.id").unlink()
    with pytest.raises(GapError, match="made again"):
        follow().poll(1, 0)


def test_a_segment_rewritten_under_a_reader_is_a_gap(folder: Path, follow: Follow) -> None:
    append(folder / SEGMENT, EVENT + b"\n")
    source = follow()
    assert values(source) == [EVENT]
    (folder / SEGMENT).write_bytes(b'{"m":0}\n' * 100)
    with pytest.raises(GapError, match="first line"):
        source.poll(1, 0)


@pytest.mark.parametrize("new_events", [0, 1, 5])
def test_a_folder_that_was_made_again_under_a_reader_is_a_gap(folder: Path, follow: Follow, new_events: int) -> None:
    append(folder / SEGMENT, (EVENT + b"\n") * 2)
    source = follow()
    assert values(source) == [EVENT, EVENT]
    folder.rename(folder.with_name("earlier"))
    sink = FileSink(folder)
    for _ in range(new_events):
        sink.send(EVENT)
    sink.close()
    with pytest.raises(GapError, match="was deleted or replaced while it was read"):
        source.poll(1, 0)


def test_a_folder_that_is_away_for_a_while_is_waited_for(folder: Path, follow: Follow) -> None:
    append(folder / SEGMENT, EVENT + b"\n")
    source = follow()
    assert values(source) == [EVENT]
    away = folder.rename(folder.with_name("away"))
    words = set()
    for ask in (lambda: source.poll(1, 0), source.progress, lambda: source.end(source.partition)):
        with pytest.raises(SourceError, match="check that it is there") as refused:
            ask()
        words.add(str(refused.value))
    assert len(words) == 1, "a worker would tell the same trouble again and again"
    # An empty place at which a disk was mounted.
    folder.mkdir()
    with pytest.raises(SourceError, match="check that it is there"):
        source.poll(1, 0)
    folder.rmdir()
    away.rename(folder)
    append(folder / SEGMENT, EVENT + b"\n")
    assert values(source) == [EVENT]


@pytest.mark.parametrize("damaged", [b"{", b'{"topic_id":"\xff","offset":1}', b'{"topic_id":"a","offset":-5}'])
def test_a_damaged_commit_says_what_to_remove(folder: Path, follow: Follow, damaged: bytes) -> None:
    committed_after_two_of_three(folder, follow)
    (folder / "workers.commit").write_bytes(damaged)
    with pytest.raises(SourceError, match=r"workers.commit: damaged"):
        follow().poll(1, 0)


def test_a_commit_that_cannot_be_written_says_nothing_of_membership(folder: Path, follow: Follow) -> None:
    source = follow()
    source.poll(1, 0)
    (folder / "workers.commit").mkdir()
    with capture_logs() as lines:
        for _ in range(3):
            assert source.commit({source.partition: 1 << OFFSET_BITS}) is CommitResult.UNKNOWN
        (folder / "workers.commit").rmdir()
        assert source.commit({source.partition: 1 << OFFSET_BITS}) is CommitResult.RECORDED
        (folder / "workers.commit").unlink()
        (folder / "workers.commit").mkdir()
        source.commit({source.partition: 1 << OFFSET_BITS})
    # It is logged once, although the worker tries again and again.
    assert [line["event"] for line in lines] == ["commit_failed", "commit_failed"]
