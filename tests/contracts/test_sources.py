"""What every source and sink that needs no service does: files in a folder, a single file, memory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from omdml.errors import GapError, SourceError
from omdml.streams.files.source import FileSink, FileSource
from omdml.streams.memory_log import MemoryLog, MemorySink, MemorySource
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import CommitResult, Partition, Record, Sink, Source
from tests.support.servers.listeners import Recorder

EVENT = b'{"type":"triplet","model":"shop","query":"a","relevant":"b","irrelevant":"c"}'


class Backend(NamedTuple):
    """How to make the two ends of one log."""

    sink: Callable[[], Sink]
    source: Callable[[str], Source]


@pytest.fixture(params=["folder", "file", "memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "memory":
        log = MemoryLog()
        return Backend(lambda: MemorySink(log), lambda group: MemorySource(log, group))
    path = tmp_path / ("feedback" if request.param == "folder" else "clicks.jsonl")
    return Backend(lambda: FileSink(path, fsync=False), lambda group: FileSource(path, group))


@pytest.fixture
def sink(backend: Backend) -> Iterator[Sink]:
    sink = backend.sink()
    yield sink
    sink.close()


@pytest.fixture
def open_source(backend: Backend) -> Iterator[Callable[..., Source]]:
    sources: list[Source] = []

    def subscribed(listener: Recorder | None = None, group: str = "workers") -> Source:
        sources.append(backend.source(group))
        sources[-1].subscribe(listener or Recorder())
        return sources[-1]

    yield subscribed
    for source in sources:
        source.close()


Open = Callable[..., Source]


def drain(source: Source) -> list[Record]:
    """Poll until nothing more comes; returns all records."""
    records: list[Record] = []
    while part := source.poll(100, 0):
        records += part
    return records


def test_records_come_back_as_they_were_sent_and_in_order(sink: Sink, open_source: Open) -> None:
    sent = [b'{"n":%d}' % n for n in range(250)]
    for value in sent:
        sink.send(value, key="shop")
    sink.flush()
    records = drain(open_source())
    assert [record.value for record in records] == sent
    assert {record.key for record in records} == {b"shop"}
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"\x00\xff\n\n\r\n",
        b"not json",
        b'{"broken',
        b'{\n"a": 1}',
        b'{"logged":1790000000.250000,"key":"x","a":1}',
        b'{"key":"x","a":1}',
        b'{"record":{"logged":1.0,"key":null,"headers":[],"value":"x"}}',
        "{'naïve': '☃'}".encode(),
        b'{"a":1} \r',
    ],
)
@pytest.mark.parametrize("key", [None, "", "shop", 'a "quoted"\\key\n', "naïve ☃"])
def test_any_bytes_under_any_key_come_back_unchanged(
    sink: Sink, open_source: Open, value: bytes, key: str | None
) -> None:
    sink.send(value, key)
    sink.send(EVENT)
    first, second = drain(open_source())
    assert first.value == value
    assert first.key == (None if key is None else key.encode())
    assert second.value == EVENT
    assert second.key is None


def test_headers_come_back_text_or_not(sink: Sink, open_source: Open) -> None:
    headers = (("content-type", b"application/msgpack"), ("raw", b"\xff\x00"), ("content-type", b"again"))
    sink.send(b"\x81\xa1a\x01", "shop", headers)
    (record,) = drain(open_source())
    assert record.headers == headers
    assert record.value == b"\x81\xa1a\x01"


def test_a_record_carries_the_time_at_which_it_was_sent(sink: Sink, open_source: Open) -> None:
    sink.send(EVENT, "shop")
    sink.send(EVENT, "shop", [("a", b"b")])
    first, second = drain(open_source())
    assert first.timestamp is not None
    assert second.timestamp is not None
    assert 1.7e9 < first.timestamp <= second.timestamp


def test_a_poll_answers_no_more_than_asked_for(sink: Sink, open_source: Open) -> None:
    for _ in range(5):
        sink.send(EVENT)
    source = open_source()
    assert [len(source.poll(most, 0)) for most in (0, 2, 2, 0, 2, 2)] == [0, 2, 2, 0, 1, 0]


def test_records_sent_after_the_end_was_reached_are_followed(sink: Sink, open_source: Open) -> None:
    source = open_source()
    assert source.poll(10, 0) == []
    for n in range(3):
        sink.send(b'{"n":%d}' % n)
        assert [record.value for record in source.poll(10, 5)] == [b'{"n":%d}' % n]


def test_the_listener_hears_of_its_partitions_in_the_first_poll_and_in_close(open_source: Open) -> None:
    listener = Recorder()
    source = open_source(listener)
    assert listener.events == []
    source.poll(10, 0)
    source.poll(10, 0)
    assert [event for event, _ in listener.events] == ["assigned"]
    assert list(listener.committed.values()) == [None]
    source.close()
    assert [event for event, _ in listener.events] == ["assigned", "revoked"]
    assert listener.events[0][1] == listener.events[1][1]


def test_a_group_goes_on_where_it_committed(sink: Sink, open_source: Open) -> None:
    for n in range(4):
        sink.send(b'{"n":%d}' % n)
    source = open_source()
    done, coming = source.poll(2, 0), source.poll(2, 0)
    assert source.commit({coming[0].partition: coming[0].offset}) is CommitResult.RECORDED
    source.close()
    listener = Recorder()
    again = open_source(listener)
    assert drain(again) == coming
    assert listener.committed == {done[0].partition: coming[0].offset}


def test_the_start_that_the_listener_answers_wins_over_the_commit(sink: Sink, open_source: Open) -> None:
    for n in range(4):
        sink.send(b'{"n":%d}' % n)
    source = open_source()
    records = drain(source)
    source.commit({records[0].partition: records[3].offset})
    source.close()
    assert drain(open_source(Recorder(start=records[1].offset))) == records[1:]


def test_groups_do_not_disturb_each_other(sink: Sink, open_source: Open) -> None:
    sink.send(EVENT)
    first, second = open_source(group="one"), open_source(group="two / with a strange name")
    (record,) = drain(first)
    assert first.commit({record.partition: record.offset + 1}) is CommitResult.RECORDED
    assert drain(second) == [record]


def test_a_seek_delivers_the_records_at_and_above_the_offset(sink: Sink, open_source: Open) -> None:
    for n in range(4):
        sink.send(b'{"n":%d}' % n)
    source = open_source()
    records = drain(source)
    source.seek(records[0].partition, records[2].offset)
    assert drain(source) == records[2:]
    source.seek(records[0].partition, records[1].offset + 1)
    assert drain(source) == records[2:]


def test_a_model_lives_where_a_sink_sends_its_events(sink: Sink, open_source: Open) -> None:
    source = open_source()
    placement = Placement.first(source.partitioner, source.partitions)
    for model in ("shop", "faces", "modèle"):
        sink.send(EVENT, model)
        (record,) = source.poll(1, 0)
        assert Partition(source.topic_id, placement.home(model)) == record.partition


def test_the_end_is_after_the_last_record(sink: Sink, open_source: Open) -> None:
    source = open_source()
    sink.send(EVENT, "shop")
    (record,) = source.poll(1, 0)
    sink.send(EVENT, "shop")
    (last,) = source.poll(1, 0)
    assert source.end(record.partition) > last.offset
    assert source.progress()[record.partition] == (source.end(record.partition),) * 2


def test_progress_ends_where_the_log_ends(sink: Sink, open_source: Open) -> None:
    source = open_source()
    assert source.progress() == {}
    source.poll(1, 0)
    ((position, end),) = source.progress().values()
    assert position == end
    sink.send(EVENT)
    sink.send(EVENT)
    records = source.poll(1, 0)
    ((position, end),) = source.progress().values()
    assert records[0].offset < position < end
    records = source.poll(1, 0)
    assert records[0].offset == position
    assert list(source.progress().values()) == [(end, end)]


def test_the_position_at_the_end_can_be_kept_before_anything_was_sent(sink: Sink, open_source: Open) -> None:
    source = open_source()
    source.poll(1, 0)
    ((partition, (position, _)),) = source.progress().items()
    assert source.commit({partition: position}) is CommitResult.RECORDED
    source.close()
    listener = Recorder()
    again = open_source(listener)
    assert again.poll(1, 0) == []
    assert listener.committed == {partition: position}
    sink.send(EVENT)
    assert [record.value for record in drain(again)] == [EVENT]


def test_a_position_past_the_end_is_a_gap_until_it_is_moved(sink: Sink, open_source: Open) -> None:
    sink.send(EVENT)
    source = open_source()
    (record,) = drain(source)
    source.seek(record.partition, record.offset + 10_000)
    for _ in range(2):
        with pytest.raises(GapError, match="--accept-gap"):
            source.poll(1, 0)
    source.seek(record.partition, record.offset)
    assert drain(source) == [record]


def test_a_closed_or_unsubscribed_source_says_so(backend: Backend) -> None:
    source = backend.source("workers")
    with pytest.raises(SourceError, match="subscribe"):
        source.poll(1, 0)
    source.subscribe(Recorder())
    source.poll(1, 0)
    ((partition, (position, _)),) = source.progress().items()
    source.close()
    source.close()
    with pytest.raises(SourceError, match="subscribe"):
        source.poll(1, 0)
    assert source.commit({partition: position}) is not CommitResult.RECORDED
    assert source.progress() == {}
