"""Rotated files that are gone, and a ledger of segments that is damaged."""

from pathlib import Path

import pytest

from omdml.errors import GapError, SourceError
from omdml.streams.files.log import OFFSET_BITS
from tests.support.files.files import Follow, read_records
from tests.support.files.rotated_files import commit_here, numbers, rotate, write


def test_a_file_truncated_without_a_copy_is_a_gap_then_and_after_a_restart(clicks: Path, follow_clicks: Follow) -> None:
    source = follow_clicks()
    write(clicks, 1, 2)
    assert numbers(source) == [1, 2]
    commit_here(source)
    source = follow_clicks()
    assert numbers(source) == []
    clicks.write_bytes(b"")
    with pytest.raises(GapError, match=r"ends at byte 0|neither in that file"):
        source.poll(1, 0)
    source.close()
    write(clicks, 3, 4, 5, 6)
    with pytest.raises(GapError, match="neither in that file nor in a rotated one"):
        follow_clicks().poll(1, 0)


def test_after_a_gap_the_beginning_is_what_is_left_under_higher_offsets(clicks: Path, follow_clicks: Follow) -> None:
    source = follow_clicks()
    write(clicks, 1, 2)
    assert numbers(source) == [1, 2]
    commit_here(source)
    clicks.write_bytes(b"")
    write(clicks, 3)
    (record,) = read_records(clicks)
    assert record.offset == 2 << OFFSET_BITS


@pytest.mark.parametrize("compressed", [True, False], ids=["compressed", "removed"])
def test_a_rotated_file_removed_or_compressed_before_it_was_read_is_a_gap(
    clicks: Path, follow_clicks: Follow, compressed: bool
) -> None:
    source = follow_clicks()
    write(clicks, 1)
    assert numbers(source) == [1]
    write(clicks, 2)
    commit_here(source)
    rotate(clicks)
    rotated = clicks.with_name("clicks.jsonl.1")
    if compressed:
        rotated.rename(clicks.with_name("clicks.jsonl.1.gz"))
    else:
        rotated.unlink()
    write(clicks, 3)
    with pytest.raises(GapError, match="delaycompress"):
        follow_clicks().poll(1, 0)


def test_a_ledger_line_torn_by_a_crash_is_written_again(clicks: Path, follow_clicks: Follow) -> None:
    write(clicks, 1)
    source = follow_clicks()
    assert numbers(source) == [1]
    ledger = clicks.with_name("clicks.jsonl.id")
    before = ledger.read_bytes()
    ledger.write_bytes(before[:-30])
    rotate(clicks)
    write(clicks, 2)
    assert numbers(source) == [2]
    assert ledger.read_bytes().startswith(before)
    assert ledger.read_bytes().count(b"\n") == 3


def test_what_a_power_cut_left_at_the_end_of_the_ledger_is_cut_off(clicks: Path, follow_clicks: Follow) -> None:
    write(clicks, 1)
    source = follow_clicks()
    assert numbers(source) == [1]
    commit_here(source)
    ledger = clicks.with_name("clicks.jsonl.id")
    before = ledger.read_bytes()
    ledger.write_bytes(before + bytes(20) + b"\n\xff garbage\n")
    write(clicks, 2)
    assert numbers(follow_clicks()) == [2]
    assert ledger.read_bytes() == before


def test_a_ledger_that_is_damaged_in_its_middle_says_what_to_do(clicks: Path, follow_clicks: Follow) -> None:
    write(clicks, 1)
    source = follow_clicks()
    assert numbers(source) == [1]
    commit_here(source)
    ledger = clicks.with_name("clicks.jsonl.id")
    first, second = ledger.read_bytes().split(b"\n")[:2]
    ledger.write_bytes(b"\n".join([first, b"garbage", second, b""]))
    with pytest.raises(SourceError, match=r"clicks\.jsonl\.id: line 2 is damaged"):
        follow_clicks().poll(1, 0)
