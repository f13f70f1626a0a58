"""A log's records as Parquet files, so that history outlives what the log retains."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omdml.errors import ConfigurationError
from omdml.streams.disk import put
from omdml.streams.extents import Extent
from omdml.streams.protocols.log import Partition, Record, Source
from omdml.workers.operate.replay import read_whole

# Records of a file, and of a row group: readers take row groups whole.
FILE_RECORDS, GROUP_RECORDS = 65_536, 16_384
NAME = re.compile(r"(\d{20})-(\d{20})\.parquet")
# The key under which a file says which offsets it covers.
COVERS = b"omdml"


def archive(
    open_source: Callable[[], Source], extents: Sequence[Extent], folder: Path, accept_gap: bool = False
) -> int:
    """Write what the log holds and the folder does not; answers how many records that were.

    Each file covers the offsets ``begin`` to ``end`` of one partition and is put in place whole, so an archive that is
    killed goes on where it was. Raises GapError if the log no longer holds what comes next, SourceError.
    """
    ends = archived(folder, extents)
    begins = {extent.partition.number: extent.begin for extent in extents}
    waiting: dict[Partition, list[Record]] = {}
    count = 0

    def write(partition: Partition, records: list[Record]) -> None:
        # What retention deleted before it was archived is covered by no file.
        begin = max(ends.get(partition.number, 0), begins[partition.number])
        ends[partition.number] = end = records[-1].offset + 1
        put_file(folder_of(folder, partition) / f"{begin:020d}-{end:020d}.parquet", begin, end, records)

    for records in read_whole(open_source(), accept_gap, since=_starts(ends, begins)):
        new = [record for record in records if record.offset >= ends.get(record.partition.number, 0)]
        count += len(new)
        for record in new:
            waiting.setdefault(record.partition, []).append(record)
        for partition, some in waiting.items():
            if len(some) >= FILE_RECORDS:
                write(partition, some)
                waiting[partition] = []
    for partition, some in waiting.items():
        if some:
            write(partition, some)
    return count


def _starts(ends: Mapping[int, int], begins: Mapping[int, int]) -> dict[int, int]:
    """Where to go on reading: at the last record that is archived, because a log in files is read from the beginning of
    a line only; or at the log's beginning if retention deleted just that one."""
    return {number: end if end == begins[number] else end - 1 for number, end in ends.items()}


def folder_of(folder: Path, partition: Partition) -> Path:
    """Where the files of a partition are."""
    return folder / partition.topic_id / f"partition-{partition.number:05d}"


def archived(folder: Path, extents: Iterable[Extent]) -> dict[int, int]:
    """Up to which offset each partition is archived, by number; absent if nothing of it is."""
    ends = {}
    for partition in (extent.partition for extent in extents):
        matches = [NAME.fullmatch(path.name) for path in folder_of(folder, partition).glob("*.parquet")]
        if found := [int(match[2]) for match in matches if match]:
            ends[partition.number] = max(found)
    return ends


def put_file(path: Path, begin: int, end: int, records: Sequence[Record]) -> None:
    """Write a file of records of one partition; raises ConfigurationError if the disk refuses."""
    arrow, parquet = pyarrow()
    covers = json.dumps({"partition": records[0].partition.number, "begin": begin, "end": end}).encode()
    sink = arrow.BufferOutputStream()
    table = table_of(records).replace_schema_metadata({COVERS: covers})
    parquet.write_table(table, sink, row_group_size=GROUP_RECORDS, compression="zstd")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, sink.getvalue().to_pybytes())
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}: name a folder that can be written") from error


def table_of(records: Sequence[Record]) -> Any:
    """Records as an Arrow table, with the names of Spark's Kafka source and the log's identity."""
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
    """Pyarrow and its Parquet; raises ConfigurationError if it is missing."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigurationError("archives are Parquet files, which need pyarrow: pip install 'omdml[parquet]'") from (
            error
        )
    return arrow, parquet
