"""Other programs that append to a log that is one file, as docs/feedback.md allows it."""

import os
from pathlib import Path

from omdml.streams.files.source import FileSink
from tests.support.files.files import Follow
from tests.support.forks import FORKS, LIMIT_S


def append_many(path: Path, name: bytes) -> None:
    """A program that knows nothing of omdml or its lock: one write for each line, to a file opened for appending."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in range(300):
        os.write(descriptor, b"%s %d %s\n" % (name, number, b"x" * (number * 7 % 500)))
    os.close(descriptor)


def test_other_programs_may_append_whole_lines_without_a_lock(clicks: Path, follow_clicks: Follow) -> None:
    writers = [FORKS.Process(target=append_many, args=(clicks, name), daemon=True) for name in (b"a", b"b")]
    for writer in writers:
        writer.start()
    sink, source, values = FileSink(clicks, fsync=False), follow_clicks(), list[bytes]()
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


def test_a_line_without_its_end_is_cut_in_two_by_a_sink(clicks: Path, follow_clicks: Follow) -> None:
    def append(data: bytes) -> list[bytes]:
        with clicks.open("ab") as file:
            file.write(data)
        return [record.value for record in source.poll(10, 0)]

    sink, source = FileSink(clicks), follow_clicks()
    assert append(b'{"n":') == []
    assert append(b"1}\n") == [b'{"n":1}']
    assert append(b'{"n":') == []
    sink.send(b'{"n":2}')
    assert append(b"3}\n") == [b'{"n":', b'{"n":2}', b"3}"]
    sink.close()
