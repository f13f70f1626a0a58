"""The dead letters beside the log that is configured: to write, to read, to send again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from omdml.errors import GapError, SourceRefused
from omdml.streams.files.newest import newest_records as newest_in_files
from omdml.streams.files.resending import FileSender
from omdml.streams.files.source import SEGMENT_BYTES, FileSink
from omdml.streams.kafka.newest import newest_records as newest_in_topic
from omdml.streams.kafka.resending import KafkaSender
from omdml.streams.kafka.routing.transaction import KafkaTransactions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.kafka.topic import create_topic, look_up
from omdml.streams.letters import Book, DeadLetters, Sender, read_book
from omdml.streams.newest import Newest
from omdml.streams.protocols.log import Source
from omdml.workers.configuration.config import FileLog, KafkaLog
from omdml.workers.wiring.feedback_log import LOOK_S, log_extents, open_sink, open_ungrouped
from omdml.workers.wiring.kafka_topic import connection, workers_of

MEGABYTE = 1_000_000
# How many letters of each partition of their topic, or bytes of their files, are looked through.
LETTERS, LETTERS_BYTES = 20_000, 32 * MEGABYTE
# Segments of dead letters: an eighth of them is deleted at a time.
KEPT_SEGMENTS = 8
READ_AGAIN = 5
Result = TypeVar("Result")


def open_letters(log: FileLog | KafkaLog) -> DeadLetters:
    """The dead letters beside the log; the topic of their own is created unless the configuration names one."""
    if isinstance(log, FileLog):
        return DeadLetters(letters_folder(log))
    if not log.letters:
        create_topic(connection(log), letters_topic(log))
    sink = KafkaSink(connection(log), topic=letters_topic(log))
    return DeadLetters(sink, sink.max_message_bytes)


def letters_folder(log: FileLog) -> FileSink:
    """Where the dead letters of a log in files are written: in so many segments that thinning takes a part of them."""
    keep = int(log.letters_keep_mb * MEGABYTE)
    return FileSink(log.letters, segment_bytes=min(SEGMENT_BYTES, keep // KEPT_SEGMENTS), keep_bytes=keep)


def letters_topic(log: KafkaLog) -> str:
    """The topic of the dead letters of a topic."""
    return log.letters or f"{log.topic}.letters"


def has_letters(log: FileLog | KafkaLog) -> bool:
    """Whether there can be dead letters; False before the first worker made their topic.

    Raises SourceRefused if the topic is missing although the configuration names it, or somebody has read events.
    """
    if isinstance(log, FileLog):
        return Path(log.letters).exists()
    options, topic = connection(log), letters_topic(log)
    if look_up(options, topic):
        return True
    if not (log.letters or any(extent.committed is not None for extent in log_extents(log)) or workers_of(log)):
        return False
    # The first worker makes the topic and then joins the group. It may have done both since the look above.
    if not look_up(options, topic):
        raise SourceRefused(without_topic(topic))
    return True


def without_topic(topic: str) -> str:
    """What it means that the topic of the dead letters is missing, and what to do."""
    return (
        f"there is no topic {topic} for dead letters. If it was deleted, the letters in it are lost. Workers wait at "
        f"the first event that they cannot learn, or do not start. Create it: omdml topics create --topic {topic} "
        "--partitions 1"
    )


def open_letters_to_read(log: FileLog | KafkaLog) -> Source | None:
    """The dead letters, to read; None if there never was one. Raises SourceError."""
    if not has_letters(log):
        return None
    if isinstance(log, KafkaLog):
        return open_ungrouped(msgspec.structs.replace(log, topic=letters_topic(log)))
    return open_ungrouped(msgspec.structs.replace(log, path=log.letters))


def read_letters(log: FileLog | KafkaLog) -> Book:
    """Everything among the dead letters; raises SourceError."""
    from omdml.workers.operate.replay import read_whole

    def read() -> Book:
        letters = open_letters_to_read(log)
        return read_book(record for records in (read_whole(letters) if letters else ()) for record in records)

    return unless_thinned(read)


def newest_letters(log: FileLog | KafkaLog, look_s: float = LOOK_S) -> Newest:
    """The newest lines among the dead letters, in bounded time; raises SourceError."""
    share = look_s / LOOK_S
    if isinstance(log, FileLog):
        return unless_thinned(lambda: newest_in_files(log.letters, int(share * LETTERS_BYTES)))
    return newest_in_topic(connection(log), letters_topic(log), log.group, int(share * LETTERS), look_s)


def unless_thinned(read: Callable[[], Result]) -> Result:
    """What ``read`` returns; called again if a worker deleted the oldest letters meanwhile (``log.letters_keep_mb``).

    Raises GapError if files are missing again and again: then somebody else removes them.
    """
    for _ in range(READ_AGAIN):
        with suppress(GapError):
            return read()
    return read()


def open_sender(log: FileLog | KafkaLog, in_parts: Collection[str] = ()) -> Sender:
    """What sends the events of dead letters again, given the models in parts; raises SourceError."""
    if isinstance(log, KafkaLog):
        letters = letters_topic(log)
        transactions = KafkaTransactions(connection(log), f"omdml.{letters}", log.partitioner)
        return KafkaSender(transactions, log.topic, letters, in_parts)
    from omdml.workers.operate.replay import read_whole

    return FileSender(open_sink(log), letters_folder(log), read_whole(open_ungrouped(log)))
