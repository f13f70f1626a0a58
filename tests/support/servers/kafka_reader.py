"""Reads a Kafka topic as a worker does, and damages the topic for tests."""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import CoordinatorNotAvailableError

from deploy.local import KafkaServer
from omdml.errors import GapError
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.reading.source import KafkaSource
from omdml.streams.protocols.log import CommitResult, Partition, Record
from tests.support.waiting import until

NewTopic = Callable[..., str]
Open = Callable[..., "Reader"]


class Reader:
    """A source with a listener as a worker has, and the records that it read."""

    def __init__(self, source: KafkaSource, start: int | str | None = "committed", read: int | None = None) -> None:
        self.source = source
        self.start = start
        self.committed: dict[Partition, int | None] = {}
        self.changes: list[tuple[str, set[int]]] = []
        self.records: list[Record] = []
        self.broken = ""
        source.subscribe(self, read)

    def assigned(self, committed: Mapping[Partition, int | None]) -> Mapping[Partition, int | None]:
        self.changes.append(("assigned", {partition.number for partition in committed}))
        self.committed.update(committed)
        if self.start == "committed":
            return committed
        assert not isinstance(self.start, str)
        return dict.fromkeys(committed, self.start)

    def revoked(self, partitions: Iterable[Partition]) -> None:
        self.changes.append(("revoked", {partition.number for partition in partitions}))
        if self.broken:
            raise LookupError(self.broken)

    def lost(self, partitions: Iterable[Partition]) -> None:
        self.changes.append(("lost", {partition.number for partition in partitions}))

    @property
    def owned(self) -> set[int]:
        return {partition.number for partition in self.source.progress()}

    @property
    def values(self) -> list[bytes]:
        return [record.value for record in self.records]

    def read(self, max_records: int = 1000) -> list[Record]:
        records = self.source.poll(max_records, 0.1)
        self.records += records
        return records

    def read_until(self, condition: Callable[[], object], limit_s: float = 30.0) -> "Reader":
        until(lambda: condition() or (self.read() and condition()), limit_s)
        return self

    def read_to_the_end(self) -> "Reader":
        def at_the_end() -> bool:
            progress = self.source.progress()
            return bool(progress) and all(position == end for position, end in progress.values())

        return self.read_until(at_the_end)

    def commit(self) -> CommitResult:
        return self.source.commit({name: position for name, (position, _) in self.source.progress().items()})


@pytest.fixture
def open_reader(kafka: KafkaServer) -> Iterator[Open]:
    """Opens a reader of a topic; all are closed after the test."""
    sources: list[KafkaSource] = []

    def open_reader(
        topic: str, start: int | str | None = "committed", read: int | None = None, **settings: Any
    ) -> Reader:
        options = KafkaOptions(servers=kafka.servers)
        source = KafkaSource(options, topic=topic, **{"group": f"readers-of-{topic}", **settings})
        sources.append(source)
        return Reader(source, start, read)

    yield open_reader
    kafka.resume()
    kafka.start()
    for source in sources:
        source.close()


def write(kafka: KafkaServer, topic: str, values: Iterable[bytes], partition: int = 0, **fields: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka.servers, linger_ms=5)
    for value in values:
        producer.send(topic, value, partition=partition, **fields)
    producer.flush()
    producer.close()


def cut(kafka: KafkaServer, topic: str, end: int) -> None:
    """Remove the batches from ``end`` on from a broker's files, as if a leader without them was elected."""
    kafka.kill()
    folder = kafka.data / "logs" / f"{topic}-0"
    with (folder / f"{0:020}.log").open("r+b") as file:
        while struct.unpack(">q", file.read(8))[0] < end:
            file.seek(struct.unpack(">i", file.read(4))[0], 1)
        file.seek(-8, 1)
        file.truncate()
    for index in folder.glob("*index"):
        index.unlink()
    kafka.start()


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [str(number).encode() for number in range(start, start + count)]


def administer(kafka: KafkaServer, do: Callable[[Any], Any]) -> Any:
    """Call an administrator's client; on a new broker it waits until the group's coordinator is there."""
    admin = KafkaAdminClient(bootstrap_servers=kafka.servers)
    answers = []

    def done() -> bool:
        try:
            answers.append(do(admin))
        except CoordinatorNotAvailableError:
            return False
        return True

    try:
        until(done)
        return answers[0]
    finally:
        admin.close()


def gap(reader: Reader) -> GapError:
    """The gap that the reader runs into."""
    with pytest.raises(GapError) as caught:
        reader.read_until(lambda: False)
    return caught.value
