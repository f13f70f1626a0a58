"""Reads Parquet archives of one partition: which offsets are in which row groups, and the records of a piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.errors import SourceError
from omdml.streams.bounded_files import opened
from omdml.streams.protocols.log import Partition, Record
from omdml.workers.operate.history.archive import COVERS, Covers, pyarrow

# Columns that a file must have, and those that it may have.
REQUIRED, OPTIONAL = ("partition", "offset", "value"), ("topic_id", "timestamp", "key", "headers")


class RowGroup(NamedTuple):
    """A row group that holds records of the partition, from the offset ``first`` to the offset ``last``."""

    path: str
    number: int
    first: int
    last: int


class Archive(NamedTuple):
    """The offsets ``begin`` to ``end`` of one partition, and the row groups with their records.

    ``covers`` lists the ranges (begin, end) that files say they cover. An offset without a record in such a range never
    had one, for example because it marks a transaction. Files that other programs wrote do not say what they cover.
    """

    partition: Partition
    begin: int
    end: int
    groups: tuple[RowGroup, ...]
    covers: tuple[tuple[int, int], ...]


class Piece(NamedTuple):
    """The offsets ``begin`` to ``end`` of a partition, and the row groups that may hold them."""

    partition: Partition
    begin: int
    end: int
    groups: tuple[RowGroup, ...]


def find_records(inputs: Sequence[str], number: int, topic_id: str | None) -> Archive:
    """Find out which records of a partition are in files, or in the ``*.parquet`` files of folders.

    Parameters
    ----------
    topic_id
        The log's identity, for files without a column ``topic_id``.

    Raises SourceError if a file is not an archive, files are of several logs, or none has a record of the partition.
    """
    groups: list[RowGroup] = []
    covers: list[tuple[int, int]] = []
    ids: dict[str, str] = {} if topic_id is None else {topic_id: "--topic-id"}
    paths = files_of(inputs)
    for path in paths:
        content = _content_of(path, number)
        groups += content.groups
        covers += content.covers
        ids |= dict.fromkeys(content.topic_ids, str(path))
        if not content.topic_ids and topic_id is None:
            raise SourceError(
                f"{path}: it has no column topic_id, so it does not say of which log it is: pass --topic-id"
            )
    if len(ids) > 1:
        listed = ", ".join(f"{name!r} ({where})" for name, where in sorted(ids.items()))
        raise SourceError(f"the input is of several logs, expected one: {listed}: leave out the files of the others")
    if not groups:
        raise SourceError(f"{', '.join(inputs)}: {len(paths)} files, and no record of partition {number}, where the "
                          "model lives: name files that hold that partition")  # fmt: skip
    groups.sort(key=lambda group: (group.first, group.last, group.path, group.number))
    covers.sort()
    begin = min([groups[0].first, *(first for first, _ in covers)])
    end = max([max(group.last for group in groups) + 1, *(last for _, last in covers)])
    return Archive(Partition(next(iter(ids)), number), begin, end, tuple(groups), tuple(covers))


def files_of(inputs: Sequence[str]) -> list[Path]:
    """The named files, and those in the named folders, each once; raises SourceError if one does not exist."""
    paths: list[Path] = []
    for name in inputs:
        path = Path(name)
        if not path.exists():
            raise SourceError(f"--input {name}: it does not exist, expected a Parquet file or a folder of such files")
        inside = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        if not inside:
            raise SourceError(f"--input {name}: the folder has no *.parquet files, which omdml archive writes")
        paths += inside
    return list(dict.fromkeys(path.resolve() for path in paths))


def pieces(archive: Archive, span: int) -> list[Piece]:
    """The archive, cut at multiples of ``span`` offsets; pieces without a row group are left out."""
    # Not range by range: the offsets of a log in files have wide gaps between segments.
    groups_by_number: dict[int, list[RowGroup]] = {}
    for group in archive.groups:
        for number in range(group.first // span, group.last // span + 1):
            groups_by_number.setdefault(number, []).append(group)
    archive_pieces = []
    for number, groups in sorted(groups_by_number.items()):
        begin, end = max(archive.begin, number * span), min(archive.end, (number + 1) * span)
        archive_pieces.append(Piece(archive.partition, begin, end, tuple(groups)))
    return archive_pieces


def by_chunk(piece: Piece, span: int) -> Iterator[tuple[int, list[Record]]]:
    """The records of a piece in order, each offset once, by the number of their chunk of ``span`` offsets.

    Raises SourceError if two records have the same offset and are not the same event, or a file is damaged.
    """
    arrow, parquet = pyarrow()
    tables = []
    for path, groups in groupby(piece.groups, key=lambda group: group.path):
        with _readable(path), opened(path) as data, parquet.ParquetFile(data, page_checksum_verification=True) as file:
            names = [name for name in (*REQUIRED, *OPTIONAL[1:]) if name in file.schema_arrow.names]
            table = file.read_row_groups([group.number for group in groups], columns=names)
        numbers, offsets = _whole_numbers(table, path)
        in_piece = (numbers == piece.partition.number) & (offsets >= piece.begin) & (offsets < piece.end)
        tables.append(table.filter(arrow.array(in_piece)))
    records = sorted((record for table in tables for record in _records(piece.partition, table)),
                     key=lambda record: record.offset)  # fmt: skip
    chunks = groupby(_once(records), key=lambda record: record.offset // span)
    yield from ((number, list(some)) for number, some in chunks)


def _once(records: Sequence[Record]) -> Iterator[Record]:
    before: Record | None = None
    for record in records:
        if before is None or record.offset != before.offset:
            yield record
        elif (record.value, record.headers) != (before.value, before.headers):
            raise SourceError(
                f"partition {record.partition.number}: the input has two different events with offset "
                f"{record.offset}, so its files are of several logs: leave out the files of the others"
            )
        before = record


def _records(partition: Partition, table: Any) -> Iterator[Record]:
    columns = {name: table[name].to_pylist() for name in table.column_names}
    none = [None] * len(table)
    for offset, value, time, key, headers in zip(
        columns["offset"], columns["value"], columns.get("timestamp", none), columns.get("key", none),
        columns.get("headers", none), strict=True,
    ):  # fmt: skip
        named = tuple((header["key"], _bytes(header["value"]) or b"") for header in headers or ())
        yield Record(partition, offset, _bytes(value) or b"", _bytes(key), _seconds(time), named)


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _seconds(time: float | datetime | None) -> float | None:
    if isinstance(time, datetime):
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    return time


class _Content(NamedTuple):
    groups: list[RowGroup]
    covers: list[tuple[int, int]]
    topic_ids: set[str]


def _content_of(path: Path, number: int) -> _Content:
    _, parquet = pyarrow()
    content = _Content([], [], set())
    with _readable(path), opened(path) as data, parquet.ParquetFile(data) as file:
        schema, metadata = file.schema_arrow, file.metadata
        _check_columns(path, schema)
        for group in range(metadata.num_row_groups):
            if span := _span(file, group, number, path):
                content.groups.append(RowGroup(str(path), group, *span))
        if "topic_id" in schema.names and metadata.num_rows:
            content.topic_ids.update(_distinct(file, "topic_id"))
    if None in content.topic_ids:
        raise SourceError(f"{path}: rows without a topic_id, so it does not say of which log they are: leave it out")
    note = (schema.metadata or {}).get(COVERS)
    if note:
        try:
            covers = msgspec.json.decode(note, type=Covers)
        except msgspec.DecodeError as error:
            raise SourceError(f"{path}: what it says of its offsets cannot be read ({error}): leave it out") from error
        if covers.partition == number:
            content.covers.append((covers.begin, covers.end))
    return content


@contextmanager
def _readable(path: str | Path) -> Iterator[None]:
    """Raise SourceError if a file cannot be read."""
    arrow, _ = pyarrow()
    try:
        yield
    except (OSError, arrow.ArrowException) as error:
        raise SourceError(
            f"{path}: not a Parquet file that can be read ({' '.join(str(error).split())}): leave it out. If it was "
            "one, restore it from a copy, because omdml archive does not write it again"
        ) from error


def _check_columns(path: Path, schema: Any) -> None:
    """Raise SourceError if a column is missing, or cannot be what it should be."""
    from pyarrow import types

    def is_bytes(kind: Any) -> bool:
        return any(fits(kind) for fits in (types.is_binary, types.is_large_binary, is_text))

    def is_text(kind: Any) -> bool:
        return bool(types.is_string(kind) or types.is_large_string(kind))

    def is_time(kind: Any) -> bool:
        # A whole number could be seconds or milliseconds.
        return bool(types.is_timestamp(kind) or types.is_floating(kind))

    def is_headers(kind: Any) -> bool:
        lists = types.is_list(kind) or types.is_large_list(kind)
        return (
            lists and types.is_struct(kind.value_type) and {"key", "value"} <= {field.name for field in kind.value_type}
        )

    expected: dict[str, tuple[Callable[[Any], bool], str]] = {
        "partition": (types.is_integer, "whole numbers"),
        "offset": (types.is_integer, "whole numbers"),
        "value": (is_bytes, "bytes or text"),
        "topic_id": (is_text, "text"),
        "timestamp": (is_time, "times, or seconds since 1970 with a fraction"),
        "key": (is_bytes, "bytes or text"),
        "headers": (is_headers, "lists of structs of key and value"),
    }
    for name, (fits, what) in expected.items():
        if name not in schema.names:
            if name in OPTIONAL:
                continue
            raise SourceError(
                f"{path}: no column {name!r} among {', '.join(schema.names)}: expected partition, offset and value, as "
                "omdml archive and Spark's Kafka source write them"
            )
        kind = schema.field(name).type
        empty = name in ("timestamp", "key", "headers") and types.is_null(kind)
        if not (fits(kind) or empty):
            raise SourceError(f"{path}: column {name!r} is {kind}, expected {what}")


def _whole_numbers(table: Any, path: str | Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The partition and the offset of each row; raises SourceError if one is missing."""
    for name in ("partition", "offset"):
        if table[name].null_count:
            raise SourceError(f"{path}: {table[name].null_count:,} rows have no {name}: leave it out")
    return np.asarray(table["partition"]), np.asarray(table["offset"])


def _span(file: Any, group: int, number: int, path: Path) -> tuple[int, int] | None:
    """First and last offset of the partition in a row group; None if it has no record of the partition."""
    numbers, offsets = (_statistics(file, group, name) for name in ("partition", "offset"))
    if numbers and not numbers[0] <= number <= numbers[1]:
        return None
    if numbers and offsets and numbers[0] == numbers[1]:
        return offsets
    row_partitions, row_offsets = _whole_numbers(file.read_row_group(group, columns=["partition", "offset"]), path)
    offsets_here = row_offsets[row_partitions == number]
    return (int(offsets_here.min()), int(offsets_here.max())) if len(offsets_here) else None


def _statistics(file: Any, group: int, name: str) -> tuple[Any, Any] | None:
    column = file.metadata.row_group(group).column(file.schema_arrow.names.index(name))
    statistics = column.statistics if column.path_in_schema == name else None
    return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None


def _distinct(file: Any, name: str) -> set[str]:
    values: set[str] = set()
    for group in range(file.metadata.num_row_groups):
        bounds = _statistics(file, group, name)
        if bounds and bounds[0] == bounds[1]:
            values.add(bounds[0])
        else:
            values.update(file.read_row_group(group, columns=[name])[name].unique().to_pylist())
    return values
