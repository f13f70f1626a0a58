"""However a file grows and however it is read, its lines come whole, once, in order, and with their offsets."""

import os
import tempfile
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omdml.streams.files import tail
from omdml.streams.files.tail import Lines, Tail

LONGEST, KEPT = 20, 12


def lines_of(data: bytes, start: int, ended: bool) -> list[Lines]:
    """A slow twin: the lines of these bytes that begin at ``start`` or later, one by one, long ones cut."""
    *ended_lines, last = data.split(b"\n")
    offsets = accumulate((len(line) + 1 for line in ended_lines), initial=0)
    lines = list(zip(offsets, [*ended_lines, last] if ended and last else ended_lines, strict=False))
    return [Lines(offset, [line]) for offset, line in lines if offset >= start]


@given(
    st.lists(st.sampled_from([b"a", b"bcd", b"\n", b"x" * 15]), max_size=40).map(b"".join),
    st.lists(st.integers(0, 120), max_size=6),
    st.integers(1, 40),
    st.integers(1, 5),
    st.integers(0, 120),
    st.booleans(),
)
def test_lines_come_whole_once_and_in_order(
    data: bytes, cuts: list[int], chunk: int, most: int, start: int, ended: bool
) -> None:
    start = min(start, len(data))
    ends = sorted({start, len(data), *(cut for cut in cuts if start < cut < len(data))})
    pieces = [data[:start], *(data[a:b] for a, b in pairwise(ends))]
    taken_lines: list[Lines] = []
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryFile() as file:
        patch.setattr(tail, "CHUNK_BYTES", chunk)
        patch.setattr(tail, "MAX_LINE_BYTES", LONGEST)
        patch.setattr(tail, "CUT_LINE_BYTES", KEPT)
        os.write(file.fileno(), pieces[0])
        reading = Tail(os.dup(file.fileno()), start)
        for piece in [*pieces[1:], b""]:
            os.write(file.fileno(), piece)
            assert reading.fill(ended=False)
            while taken := reading.take(most):
                assert len(taken.lines) <= most
                taken_lines.append(taken)
                assert reading.fill(ended=False)
        if ended:
            while reading.fill(ended=True) and (taken := reading.take(most)):
                taken_lines.append(taken)
        position = reading.position
        reading.close()
    lines_read = [
        Lines(offset, [line], taken.length)
        for taken in taken_lines
        for offset, line in zip(
            accumulate((len(line) + 1 for line in taken.lines), initial=taken.start), taken.lines, strict=False
        )
    ]
    expected = lines_of(data, start, ended)
    assert [line.start for line in lines_read] == [line.start for line in expected]
    for (_, [line], length), (_, [expected_line], _) in zip(lines_read, expected, strict=True):
        assert (
            line == expected_line
            if length is None
            else (line == expected_line[:KEPT] and length == len(expected_line) > LONGEST)
        )
    if ended:
        assert position == len(data)
