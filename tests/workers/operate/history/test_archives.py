"""``omdml archive``, and files that ``omdml bootstrap`` reads or refuses."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from omdml.errors import GapError, SourceError
from omdml.streams.memory_log import MemorySource
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.topic_extents import Extent
from omdml.workers.cli import main
from omdml.workers.operate.history import archive
from omdml.workers.operate.history.archived import by_chunk, find_records, pieces
from tests.support.files.replays import LoggedShop
from tests.support.learning.histories import History
from tests.support.worlds import events

MODEL = {"shop": {"learner": "dca", "coordinates": "features"}}


def omdml(shop, *arguments):
    return CliRunner().invoke(main, [*arguments, "-c", str(shop.file)])


def archived(history, folder):
    extents = [
        Extent(partition, history.log.start(partition), history.log.end(partition), None)
        for partition in history.log.partitions
    ]
    return archive.archive(lambda: MemorySource(history.log, "archive"), extents, folder)


def read(folder, number, span=64, topic_id=None):
    result = find_records([str(folder)], number, topic_id)
    return [record for piece in pieces(result, 2 * span) for _, some in by_chunk(piece, span) for record in some]


def test_an_archive_that_grows_holds_every_record_as_it_was(history, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "FILE_RECORDS", 30)
    for count in (200, 1, 0, 90):
        history.tell(count, seed=count)
        archived(history, tmp_path / "grown")
    for partition in history.log.partitions:
        if records := history.log.read(partition, 0, 1000):
            assert read(tmp_path / "grown", partition.number) == records
    assert archived(history, tmp_path / "grown") == 0


def test_a_log_that_lost_records_before_they_were_archived_is_refused(history, tmp_path):
    history.tell(100)
    archived(history, tmp_path / "grown")
    history.tell(100, seed=1)
    for partition in history.log.partitions:
        history.log.trim(partition, 120)
    with pytest.raises(GapError, match="the position is 99, but it holds 120"):
        archived(history, tmp_path / "grown")


def test_a_log_in_files_is_archived_and_begun_from_with_the_command(tmp_path):
    shop = LoggedShop(tmp_path, MODEL, guard="true")
    folder = str(tmp_path / "archive")
    shop.tell(*events(60))
    assert "60 records archived" in omdml(shop, "archive", "--to", folder).output
    shop.tell(*events(30, seed=1))
    assert "30 records archived" in omdml(shop, "archive", "--to", folder).output
    shop.tell(*events(20, seed=2))
    done = omdml(shop, "bootstrap", "--model", "shop", "--input", folder, "--processes", "1")
    assert done.exit_code == 0, done.output
    assert "shop: version " in done.output
    checkpoint = shop.worked()
    assert checkpoint.version + checkpoint.progress["hold_out"]["count"] == 110
    again = omdml(shop, "bootstrap", "--model", "shop", "--input", folder, "--processes", "1")
    assert (again.exit_code, "has a checkpoint already" in again.output) == (1, True)
    assert (
        omdml(shop, "bootstrap", "--model", "shop", "--input", folder, "--processes", "1", "--replace").exit_code == 0
    )


def test_an_archive_whose_name_is_too_long_is_refused_with_a_sentence(tmp_path):
    shop = LoggedShop(tmp_path, MODEL)
    shop.tell(*events(3))
    done = omdml(shop, "archive", "--to", "a" * 5000)
    assert done.exit_code == 2
    assert done.output.endswith("aaa: File name too long: name a folder that can be written\n")


@pytest.mark.parametrize(
    ("options", "says"),
    [(["--input", "nowhere"], "--input nowhere: it does not exist"),
     (["--input", "feedback"], r"the folder has no \*.parquet"),
     (["--input", "omdml.toml"], "not a Parquet file that can be read"),
     (["--input", "omdml.toml", "--master", "local"], "--master is about the engine spark"),
     (["--input", "omdml.toml", "--engine", "spark", "--processes", "2"], "pass --master 'local.N.'"),
     (["--input", "omdml.toml", "--scheduler", "tcp://host:8786"], "--scheduler is about the engine dask"),
     (["--input", "omdml.toml", "--engine", "dask"], "needs the address of a scheduler")],
)  # fmt: skip
def test_an_input_that_is_no_archive_is_a_clear_error(tmp_path, monkeypatch, options, says):
    shop = LoggedShop(tmp_path, MODEL)
    shop.tell(*events(10))
    monkeypatch.chdir(tmp_path)
    done = omdml(shop, "bootstrap", "--model", "shop", *options)
    assert done.exit_code
    assert re.search(says, done.output), done.output
    assert shop.store.peek("shop") is None


def as_spark_writes(history, path, **columns):
    """A file with the columns of Spark's Kafka source, two partitions in one row group."""
    records = [record for partition in history.log.partitions for record in history.log.read(partition, 0, 1000)]
    table = {
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "topic": pa.array(["feedback"] * len(records)),
        "partition": pa.array([record.partition.number for record in records], pa.int32()),
        "offset": pa.array([record.offset for record in records], pa.int64()),
        "timestamp": pa.array([datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=n)
                               for n in range(len(records))], pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * len(records), pa.int32()),
    }  # fmt: skip
    parquet.write_table(pa.table({**table, **columns}), path)


def test_files_of_sparks_kafka_source_are_read_with_the_logs_identity(history, tmp_path):
    history.tell(150)
    path = tmp_path / "spark.parquet"
    as_spark_writes(history, path)
    with pytest.raises(SourceError, match=r"no column topic_id, .*: pass --topic-id"):
        find_records([str(path)], 2, None)
    result = find_records([str(path)], 2, history.log.topic_id)
    assert (result.partition, result.begin, result.end, result.covers) == (history.home, 0, 150, ())
    (piece,) = pieces(result, 4096)
    ((_, records),) = by_chunk(piece, 4096)
    assert [record.value for record in records] == [entry.value for entry in history.log.read(history.home, 0, 1000)]
    assert records[0].timestamp is not None
    assert round(records[1].timestamp - records[0].timestamp, 6) == 0.001


def test_files_of_several_logs_or_without_the_models_partition_are_refused(history, tmp_path):
    history.tell(50)
    history.archived(50)
    other = History(tmp_path / "other")
    other.tell(20)
    with pytest.raises(SourceError, match="the input is of several logs, expected one"):
        find_records([str(tmp_path / "archive"), other.archived(20)], 2, None)
    with pytest.raises(SourceError, match="no record of partition 7, where the model lives"):
        find_records([str(tmp_path / "archive")], 7, None)


@pytest.mark.parametrize(
    ("columns", "says"),
    # Lists, because every process of tests reads these cases, and an array of pyarrow's imports pandas.
    [({"offset": ["1"]}, "column 'offset' is string, expected whole numbers"),
     ({"value": [1.5]}, "column 'value' is double"), ({"offset": None}, "no column 'offset' among"),
     ({"timestamp": [1_700_000_000_000]}, "column 'timestamp' is int64, expected times, or seconds"),
     ({"key": [1]}, "column 'key' is int64"), ({"headers": ["a"]}, "column 'headers' is string, expected lists"),
     ({"topic_id": [1]}, "column 'topic_id' is int64"),
     ({"offset": [1, None], "partition": [0, 0], "value": [b"x", b"y"]}, "1 rows have no offset: leave it out"),
     ({"offset": [1, 2], "partition": [0, None], "value": [b"x", b"y"]}, "1 rows have no partition"),
     ({"topic_id": ["a", "b", None], "offset": [1, 2, 3], "partition": [0] * 3, "value": [b"x", b"y", b"z"]},
      "rows without a topic_id")],
)  # fmt: skip
def test_a_table_that_holds_no_records_is_refused(tmp_path, columns, says):
    table = {"partition": [0], "offset": [1], "value": [b"x"], **columns}
    parquet.write_table(pa.table({name: column for name, column in table.items() if column}), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=says):
        read(tmp_path, 0, topic_id="log")


def test_columns_without_a_value_are_as_if_they_were_not_there(tmp_path):
    table = {"partition": [0], "offset": [1], "value": ["x"], "key": [None], "timestamp": [None], "headers": [None]}
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    assert read(tmp_path, 0, topic_id="log") == [Record(Partition("log", 0), 1, b"x")]


@pytest.mark.parametrize("note", [b"{", b"[]", b'{"partition":2}', b'{"partition":2,"begin":"a","end":5}'])
def test_a_file_that_says_no_offsets_that_it_covers_is_refused(tmp_path, note):
    table = pa.table({"partition": [2], "offset": [1], "value": [b"x"]}).replace_schema_metadata({archive.COVERS: note})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(SourceError, match="what it says of its offsets cannot be read"):
        find_records([str(tmp_path)], 2, "log")


def test_a_damaged_byte_of_an_archive_is_noticed_or_changes_no_record(history, tmp_path):
    """Without checksums, a damaged byte would change an event, because some values are stored as they are."""
    history.tell(100)
    history.archived(100)
    (path,) = (tmp_path / "archive").rglob("*.parquet")
    content, records, messages = path.read_bytes(), read(tmp_path / "archive", 2), []
    # The footer comes after all records, and its length is in the last eight bytes.
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for position in range(4, end, 37):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        try:
            assert read(tmp_path / "archive", 2) == records, position
        except SourceError as error:
            messages.append(str(error))
    assert len(messages) > 10
    assert all(re.search(r"not a Parquet file that can be read .* restore it from a copy", text) for text in messages)


def test_two_events_with_one_offset_are_no_archive_of_one_log(history, tmp_path):
    history.tell(30)
    folder = history.archived(30)
    records = history.log.read(history.home, 0, 10)
    archive.put_file(tmp_path / "archive" / "x.parquet", 0, 10, [msgspec.structs.replace(
        record, value=record.value + b" ") for record in records])  # fmt: skip
    with pytest.raises(SourceError, match="two different events with offset 0"):
        history.summed(folder)
