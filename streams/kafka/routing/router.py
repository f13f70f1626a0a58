"""A router copies a topic of any partitioning into the keyed one: every record once, by transactions.

One turn, and what a kill after each of its steps means:

1. Gather records for a tenth of a second. Nothing is written; the next router reads them again.
2. Write their copies in a transaction. It is never committed: whoever reads committed records alone does not see them.
3. Have the group's offsets move with the same transaction. The cluster refuses if the group has gone on without this
   member. After a kill the next router waits until the transaction is aborted, then reads the records again.
4. Commit. Copies and offsets count from one moment on, or, if the cluster never heard of it, not at all.

After an error, nobody can tell which of the two it was. So there is one way on from every error: a new producer of the
same name, which has the cluster end what is open, and then the offsets of the group, which say how far it came.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

import kafka.errors
import msgspec
import structlog

from omdml.errors import ClientFailed, FeedbackError, GapError, SourceError, SourceRefused
from omdml.feedback import TooLarge
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.reading.client_health import Failures, Outage
from omdml.streams.kafka.routing.origin import RoutedSource
from omdml.streams.kafka.routing.transaction import BATCH_BYTES, KafkaTransactions
from omdml.streams.kafka.topic import message_limit
from omdml.streams.letters import Letter
from omdml.streams.protocols.log import Partition, Record

GATHER_S = 0.1
GATHER_RECORDS = 10_000
GATHER_BYTES = 8 << 20
# For one step of a transaction. If a cluster is away for longer, a new producer asks it again.
STEP_S = 10.0
# Seconds that a transaction may stay open. If a router is killed, readers wait for so long behind what it left open.
OPEN_S = 10.0
# Seconds for one try to connect.
CONNECT_S = 3.0
RETRY_S = 0.5
# Seconds to write what was gathered, after the process was asked to end.
STOP_S = 5.0
LOOK_EVERY_S = 1.0
TELL_EVERY_S = 60.0
# Around a record in a batch of its own, and around each of its headers.
ENVELOPE_BYTES, HEADER_BYTES = 128, 16

log = structlog.get_logger(__name__)


class Targets(NamedTuple):
    """Where records go, and how large a message each of the topics takes."""

    topic: str
    letters: str
    max_bytes: int = 0
    max_letter_bytes: int = 0

    def measured(self, options: KafkaOptions) -> Targets:
        """These topics with their present limits; raises SourceError if one is missing, or unfit for feedback."""
        return Targets(
            self.topic, self.letters, message_limit(options, self.topic), message_limit(options, self.letters)
        )


class Copy(NamedTuple):
    """The copy of a record. ``fate`` is ``keyed``, ``keyless`` or ``letter``."""

    fate: str
    topic: str
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


class RouterReports(Protocol):
    """What a router reports of its work."""

    def routed(self, fates: Mapping[str, int], seconds: float) -> None:
        """Count a committed transaction: its records by fate, and the seconds it took."""

    def repeated(self) -> None:
        """Count a transaction that failed. Its records are read again."""

    def behind(self, progress: Mapping[Partition, tuple[int, int]]) -> None:
        """Called about once a second with the next offset and the end of each owned partition."""


def copy_of(record: Record, key: bytes | None, targets: Targets) -> Copy:
    """What becomes of a record whose model's name is ``key``.

    A record without a name goes to any partition, and the worker that owns it makes a dead letter of it. The router
    makes dead letters only of records that are too large for the topic, or too large to be read.
    """
    if isinstance(record.value, TooLarge):
        error = FeedbackError(f"event {record.value.decode()}", reason="oversize")
        return _letter(record, key, error, targets)
    size = ENVELOPE_BYTES + len(record.value) + len(key or b"")
    size += sum(HEADER_BYTES + len(name.encode()) + len(value) for name, value in record.headers)
    if size <= targets.max_bytes:
        return Copy("keyless" if key is None else "keyed", targets.topic, key, record.value, record.headers)
    error = FeedbackError(
        f"event of {len(record.value)} bytes: topic {targets.topic!r} takes messages of {targets.max_bytes} at most; "
        "split it, or raise that topic's max.message.bytes, and send it again",
        reason="oversize",
    )
    return _letter(record, key, error, targets)


def _letter(record: Record, key: bytes | None, error: FeedbackError, targets: Targets) -> Copy:
    return Copy("letter", targets.letters, key, Letter.of(record, error, None, targets.max_letter_bytes).encode(), ())


class Router:
    """A router. Any number of them share the partitions of a topic.

    Parameters
    ----------
    source
        What is read; its group's offsets say how far.
    targets
        The topics that copies and dead letters are sent to, and how large their messages may be.
    key_of
        Answers the key of a record, the name of its model; None if it has none that can be read.
    name
        Name of its transactions. No two routers may share one, and a router that is started again needs the same.
    accept_gap
        Go on behind what the log no longer holds, or cannot be read.

    Attributes
    ----------
    turned_at
        When the loop began its last turn, by the monotonic clock; None before the first.
    """

    def __init__(
        self,
        source: RoutedSource,
        targets: Targets,
        key_of: Callable[[Record], bytes | None],
        metrics: RouterReports,
        *,
        name: str,
        partitioner: str,
        accept_gap: bool = False,
    ) -> None:
        self.source = source
        self.targets = targets
        self.accept_gap = accept_gap
        self.turned_at: float | None = None
        self._key_of = key_of
        self._metrics = metrics
        self._name = name
        self._partitioner = partitioner
        self._options: KafkaOptions = msgspec.structs.replace(source.options, start_timeout_s=CONNECT_S)
        self._transactions: KafkaTransactions | None = None
        self._gathered: dict[Partition, list[Record]] = {}
        # Where records begin that were gathered, and are to be read again.
        self._dropped: dict[Partition, int] = {}
        self._outage = Outage(source.options.servers)
        self._failures = Failures()
        self._accepted_gap = ""
        self._stop_by: float | None = None
        self._looked_at = self._counted_at = float("-inf")
        self._counted: Counter[str] = Counter()

    @property
    def connected(self) -> bool:
        """Whether the cluster answers, and it has a producer, so that it can route records. Any thread may ask."""
        # A router that has nothing to route would not notice an outage by its producer.
        return self._transactions is not None and not self.source.away

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop_by is not None

    def stop(self) -> None:
        """Stop soon. Records that were gathered are still routed, if the cluster accepts them within ``STOP_S``."""
        self._stop_by = time.monotonic() + STOP_S

    def run(self) -> None:
        """Route until :meth:`stop`; raises GapError, SourceError if an operator must decide."""
        self.source.subscribe(self)
        try:
            while not self.stopping:
                self.turned_at = time.monotonic()
                self._turn()
        finally:
            self._close()

    def _turn(self) -> None:
        try:
            self._look()
            if self._transactions is None:
                self._connect()
            self._gather()
            if self._gathered:
                self._route()
            self._accepted_gap = ""
        except GapError as gap:
            if not self.accept_gap or str(gap) == self._accepted_gap or gap.partition is None or gap.resume is None:
                raise
            self._go_on(gap, Partition(*gap.partition), gap.resume)
        except SourceRefused:
            raise
        except SourceError as error:
            self._start_over(error)

    def _go_on(self, gap: GapError, partition: Partition, resume: int) -> None:
        """Continue after a gap that the operator accepted."""
        self._accepted_gap = str(gap)
        # If another router owns the partition now, its own source tells it of the gap.
        with suppress(SourceError):
            self.source.seek(partition, resume)
            hint = "start without --accept-gap from now on"
            log.warning("gap_accepted", reason=self._accepted_gap, resume=resume, hint=hint)

    def _connect(self) -> None:
        """Make a producer, which aborts its predecessor's open transaction, and continue at the group's offsets."""
        self.targets = self.targets.measured(self._options)
        self._transactions = KafkaTransactions(
            self._options,
            self._name,
            self._partitioner,
            timeout_s=STEP_S,
            open_s=OPEN_S,
            batch_bytes=min(BATCH_BYTES, self.targets.max_bytes, self.targets.max_letter_bytes),
            given_up=self._overdue,
        )
        self.source.go_back()
        self._dropped.clear()
        self._outage.check_succeeded()

    def _gather(self) -> None:
        """Poll until there is enough for a transaction, or the first record has waited long enough."""
        until, count, size = None, 0, 0
        while self._stop_by is None and count < GATHER_RECORDS and size < GATHER_BYTES:
            now = time.monotonic()
            if until is not None and now >= until:
                break
            records = self.source.poll(GATHER_RECORDS - count, GATHER_S if until is None else until - now)
            if not records and until is None:
                break
            until = until or time.monotonic() + GATHER_S
            count += len(records)
            for record in records:
                size += len(record.value)
                self._gathered.setdefault(record.partition, []).append(record)

    def _route(self) -> None:
        """Steps 2 to 4 for what was gathered."""
        assert self._transactions is not None
        began, fates = time.monotonic(), Counter[str]()
        # This is asked before the writing. If the router left the group and joined it again meanwhile, it must not
        # commit as its later self.
        member = self.source.member
        self._transactions.begin()
        for records in self._gathered.values():
            self._write(self._transactions, records, fates)
        offsets = {partition: records[-1].offset + 1 for partition, records in self._gathered.items()}
        self._transactions.send_offsets(self.source.offsets_to_commit(offsets), member)
        self._transactions.commit()
        self._gathered.clear()
        self._failures = Failures()
        self._counted += fates
        self._metrics.routed(fates, time.monotonic() - began)

    def _write(self, transactions: KafkaTransactions, records: Iterable[Record], fates: Counter[str]) -> None:
        now_ms = int(time.time() * 1000)
        for record in records:
            fate, topic, key, value, headers = copy_of(record, self._key_of(record), self.targets)
            # A topic may refuse what claims to be from tomorrow.
            timestamp_ms = now_ms if record.timestamp is None else min(now_ms, round(record.timestamp * 1000))
            transactions.send(topic, value, key, headers, timestamp_ms)
            fates[fate] += 1

    def _start_over(self, error: SourceError) -> None:
        """After an error, drop producer and gathered records. Raises ClientFailed after too many in a row."""
        if self._gathered:
            self._metrics.repeated()
        self._dropped |= {partition: records[0].offset for partition, records in self._gathered.items()}
        self._gathered.clear()
        if self._transactions is not None:
            self._transactions.drop()
            self._transactions = None
        if isinstance(error.__cause__, kafka.errors.RetriableError):
            self._outage.check_failed(str(error))
        else:
            log.warning("routing_again", reason=str(error), action="continuing at the group's committed offsets")
            if not isinstance(error.__cause__, kafka.errors.CommitFailedError) and not self._failures.wait():
                message = f"{error}; it was tried again and again, without success: start this again"
                raise ClientFailed(message) from error
        if self._stop_by is None:
            time.sleep(RETRY_S)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            # Until the cluster answers again, the source does not know which of its records were dropped.
            progress = self.source.progress().items()
            self._metrics.behind({place: (self._dropped.get(place, offset), end) for place, (offset, end) in progress})
        if self._counted and now - self._counted_at >= TELL_EVERY_S:
            self._counted_at = now
            log.info("routed", topic=self.targets.topic, **self._counted)
            self._counted.clear()

    def _overdue(self) -> bool:
        return self._stop_by is not None and time.monotonic() > self._stop_by

    def _close(self) -> None:
        if self._counted:
            log.info("routed", topic=self.targets.topic, **self._counted)
        try:
            self.source.close()
        finally:
            if self._transactions is not None:
                self._transactions.drop()

    # Called by the source

    def assigned(self, committed: Mapping[Partition, int | None]) -> Mapping[Partition, int | None]:
        """Begin where the group's offsets are, and at the beginning of a partition that was added to the topic."""
        if None in committed.values():
            self.source.require_known()
        log.info("route_partitions_assigned", partitions=sorted(partition.number for partition in committed))
        return committed

    def revoked(self, partitions: Iterable[Partition]) -> None:
        """Drop the gathered records of these partitions. None of them is written, so the next owner reads them."""
        partitions = list(partitions)
        log.info("route_partitions_given_up", partitions=sorted(partition.number for partition in partitions))
        for partition in partitions:
            self._gathered.pop(partition, None)
            self._dropped.pop(partition, None)

    lost = revoked
