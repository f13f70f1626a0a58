"""Writes a log's records as Parquet files, so that they stay when the log deletes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from omdml.errors import ConfigurationError
from omdml.streams.disk import put
from omdml.streams.protocols.log import Partition, Record, Source
from omdml.streams.topic_extents import Extent
from omdml.workers.operate.replay import read_whole

# The most records of a file, and of a row group. Readers read whole row groups.
FILE_RECORDS, GROUP_RECORDS = 65_536, 16_384
NAME = re.compile(r"(\d{20})-(\d{20})\.parquet")
# The key under which a file says which offsets it covers.
COVERS = b"omdml"


class Covers(msgspec.Struct):
    """The offsets ``begin`` to ``end`` of one partition, of which a file has every record."""

    partition: int
    begin: int
    end: int


def archive(
    open_source: Callable[[], Source], extents: Sequence[Extent], folder: Path, accept_gap: bool = False
) -> int:
    """Write the records of the log that the folder lacks; returns how many.

    Each file covers the offsets ``begin`` to ``end`` of one partition, and appears only when it is complete. So after a
    kill the next run goes on from there. Raises GapError if the log no longer has the next records, SourceError if it
    cannot be read.
    """
    ends = archived(folder, extents)
    begins = {extent.partition.number: extent.begin for extent in extents}
    waiting: dict[Partition, list[Record]] = {}
    count = 0

    def write(partition: Partition, records: list[Record]) -> None:
        # No file covers records that the log deleted before they were archived.
        begin = max(ends.get(partition.number, 0), begins[partition.number])
        ends[partition.number] = end = records[-1].offset + 1
        put_file(folder_of(folder, partition) / f"{begin:020d}-{end:020d}.parquet", begin, end, records)

    for records in read_whole(open_source(), accept_gap, since=_starts(ends, begins)):
        new = [record for record in records if record.offset >= ends.get(record.partition.number, 0)]
        count += len(new)
        for record in new:
            waiting.setdefault(record.partition, []).append(record)
        for partition, pending in waiting.items():
            if len(pending) >= FILE_RECORDS:
                write(partition, pending)
                waiting[partition] = []
    for partition, pending in waiting.items():
        if pending:
            write(partition, pending)
    return count


def _starts(ends: Mapping[int, int], begins: Mapping[int, int]) -> dict[int, int]:
    """The offsets at which to go on reading.

    Reading begins at the last archived record, because a log in files can be read only from the beginning of a line. If
    the log has deleted that record, reading begins at the log's beginning.
    """
    return {number: end if end == begins[number] else end - 1 for number, end in ends.items()}


def folder_of(folder: Path, partition: Partition) -> Path:
    """The folder with the files of a partition."""
    return folder / partition.topic_id / f"partition-{partition.number:05d}"


def archived(folder: Path, extents: Iterable[Extent]) -> dict[int, int]:
    """Up to which offset each partition is archived, by number. Partitions without an archive are left out.

    Raises ConfigurationError if the folder cannot be read.
    """
    ends = {}
    for partition in (extent.partition for extent in extents):
        try:
            matches = [NAME.fullmatch(path.name) for path in folder_of(folder, partition).glob("*.parquet")]
        except OSError as error:
            raise ConfigurationError(f"{folder}: {error.strerror}: name a folder that can be written") from error
        if file_ends := [int(match[2]) for match in matches if match]:
            ends[partition.number] = max(file_ends)
    return ends


def put_file(path: Path, begin: int, end: int, records: Sequence[Record]) -> None:
    """Write a file of records of one partition; raises ConfigurationError if it cannot be written."""
    arrow, parquet = pyarrow()
    covers = msgspec.json.encode(Covers(records[0].partition.number, begin, end))
    sink = arrow.BufferOutputStream()
    table = table_of(records).replace_schema_metadata({COVERS: covers})
    # With checksums, a reader notices a damaged byte. Without them zstd may make other events of it.
    parquet.write_table(table, sink, row_group_size=GROUP_RECORDS, compression="zstd", write_page_checksum=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, sink.getvalue().to_pybytes())
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}: name a folder that can be written") from error


def table_of(records: Sequence[Record]) -> Any:
    """Records as an Arrow table, with the log's identity and the column names of Spark's Kafka source."""
    arrow, _ = pyarrow()
    header = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
    columns: Mapping[str, tuple[list[Any], Any]] = {
        "topic_id": ([record.partition.topic_id for record in records], arrow.string()),
        "partition": ([record.partition.number for record in records], arrow.int32()),
        "offset": ([record.offset for record in records], arrow.int64()),
        "timestamp": ([record.timestamp for record in records], arrow.float64()),
        "key": ([record.key for record in records], arrow.binary()),
        "value": ([record.value for record in records], arrow.binary()),
        "headers": (
            [[{"key": name, "value": value} for name, value in record.headers] for record in records],
            arrow.list_(header),
        ),
    }
    return arrow.table({name: arrow.array(values, kind) for name, (values, kind) in columns.items()})


def pyarrow() -> tuple[Any, Any]:
    """Import pyarrow and its Parquet module; raises ConfigurationError if it is not installed."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigurationError("archives are Parquet files, which need pyarrow: pip install 'omdml[parquet]'") from (
            error
        )
    return arrow, parquet
