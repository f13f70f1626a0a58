"""What an installation is and does just now, for ``omdml status``, and how many findings the doctor has about it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from shutil import disk_usage
from typing import TypeVar

import msgspec

from omdml.errors import OmdmlError
from omdml.streams.addresses import SCHEMES, masked
from omdml.streams.files.reader import has_begun
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.transactional.store import TransactionalStore
from omdml.workers.configuration.config import Configuration, FileLog, KafkaLog, is_pattern
from omdml.workers.doctor.checks.durability import unsafe_server
from omdml.workers.doctor.checks.installation import examine_facts
from omdml.workers.doctor.checks.lost_store import lost_store
from omdml.workers.doctor.checks.node import NodeStatus, node_status
from omdml.workers.doctor.checks.waiting_events import MOST, look_at_files
from omdml.workers.doctor.facts import Facts
from omdml.workers.doctor.findings import Level
from omdml.workers.operate.topics import PartitionReport
from omdml.workers.versions.targets import SHOWN_DIGITS

# Seconds for each of these: all checkpoints, all that nodes serve, letters, and the answer of a node.
LOOK_S = 0.3
ASK_S = 0.3
# Seconds that Kafka, or the store's server, may take to answer.
SERVER_S = 1.0
HOUR_S = 3600.0
# A folder of a store that is not there, as long as nothing shows that it ever was.
TO_COME = "folder that the first worker makes"
LOST = "folder that is not there, although workers have read the log"

Part = TypeVar("Part")


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One partition. ``lag`` counts what is in no checkpoint; ``owner`` is empty if no worker reads it.

    ``models`` is how many live there, None if that is not known.
    """

    number: int
    lag: int
    owner: str
    models: int | None = None
    wrong: str = ""


class LogStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The feedback log. ``more`` says that at least ``lag`` events wait: more were not counted."""

    kind: str
    name: str
    lag: int
    workers: list[str]
    partitions: list[PartitionStatus]
    more: bool = False


class ModelsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The models of the store. ``looked`` of them were looked at for ``waiting`` and ``withheld``."""

    count: int
    looked: int
    newest: str | None
    newest_version: int | None
    newest_at: float | None
    waiting: list[str]
    withheld: list[str]
    pinned: list[str]
    not_begun: list[str]


class LettersStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of the last hour by reason, and how many nobody settled; ``whole`` if all were looked at."""

    last_hour: dict[str, int]
    open: int
    whole: bool


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where models are kept. ``durable`` is None if that is not known; ``unsafe`` says what it may forget.

    A server uses ``used_bytes`` of memory, of ``limit_bytes`` if it has a limit; a folder's disk has ``free_bytes``.
    """

    address: str
    kind: str
    durable: bool | None
    unsafe: list[str] = []
    used_bytes: int | None = None
    limit_bytes: int | None = None
    free_bytes: int | None = None


class CatalogueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A catalogue: its name, its generation and how many items it has."""

    name: str
    items: int
    generation: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Everything. What could not be asked is None, and ``problems`` has the sentence about it."""

    at: float
    log: LogStatus | None
    models: ModelsStatus | None
    node: NodeStatus
    letters: LettersStatus | None
    store: StoreStatus | None
    catalogues: list[CatalogueStatus] | None
    problems: dict[str, str]
    errors: int
    warnings: int


class Inspection:
    """Reads the status of an installation once.

    Attributes
    ----------
    problems
        Why a part could not be read, by the part's name.
    """

    def __init__(self, configuration: Configuration) -> None:
        log = configuration.log
        if isinstance(log, KafkaLog):
            log = msgspec.structs.replace(log, start_timeout_s=min(SERVER_S, log.start_timeout_s))
        store = msgspec.structs.replace(configuration.store, url=with_short_timeout(configuration.store.url))
        self.configuration = msgspec.structs.replace(configuration, log=log, store=store)
        self.facts = Facts(self.configuration, LOOK_S)
        self.problems: dict[str, OmdmlError] = {}

    def status(self) -> Status:
        """What there is to know; whatever cannot be asked is left out."""
        # Most of the time is spent waiting for answers: these three wait side by side.
        with ThreadPoolExecutor(3) as pool:
            letters_read = pool.submit(self._part, "letters", self._letters)
            node_asked = pool.submit(node_status, self.configuration.node.bind, ASK_S)
            catalogues = self._part("catalogues", self._catalogues)
            store = self._part("store", self._store)
            log_asked = pool.submit(self._part, "log", self._log)
            models = self._part("models", self._models) if store else None
        log = log_asked.result()
        if log is None:
            # The others met the same problem.
            self.problems = {part: error for part, error in self.problems.items() if part not in ("letters", "models")}
            self.facts.readable = False
            models = self._part("models", self._models) if store else None
        if log and store and store.kind == TO_COME and self._lost():
            store = msgspec.structs.replace(store, kind=LOST, durable=None)
        self.facts.opened = "catalogues" not in self.problems
        levels = Counter(finding.level for finding in examine_facts(self.facts, store is not None))
        return Status(
            at=time.time(),
            log=log,
            models=models,
            node=node_asked.result(),
            letters=letters_read.result() if log else None,
            store=store,
            catalogues=catalogues,
            problems={part: str(error) for part, error in self.problems.items()},
            errors=levels[Level.ERROR] + len(self.problems),
            warnings=levels[Level.WARNING],
        )

    def _part(self, name: str, read: Callable[[], Part]) -> Part | None:
        try:
            return read()
        except OmdmlError as error:
            self.problems[name] = error
            return None

    def _catalogues(self) -> list[CatalogueStatus]:
        return [
            CatalogueStatus(name=name, items=catalogue.shown.items, generation=catalogue.generation[:SHOWN_DIGITS])
            for name, catalogue in self.facts.catalogues.items()
        ]

    def _store(self) -> StoreStatus:
        # Ask the server first: if it does not answer, this waits for it only once.
        address, safety = masked(self.configuration.store.url), self.facts.safety
        store, names = self.facts.store, self.facts.names
        if safety:
            return StoreStatus(
                address=address,
                kind=safety.name,
                durable=safety.append_only and safety.fsync != "no",
                unsafe=list(unsafe_server(safety)),
                used_bytes=safety.used_bytes,
                limit_bytes=safety.max_bytes or None,
            )
        if isinstance(store, TransactionalStore):
            return StoreStatus(address=address, kind=store.database.kind, durable=store.database.durable)
        if not isinstance(store, DirectoryStore):
            return StoreStatus(address=address, kind=f"{address.partition(':')[0]} store", durable=None)
        if not names and not store.store_id:
            return StoreStatus(address=address, kind=TO_COME, durable=True)
        return StoreStatus(address=address, kind="folder", durable=True, free_bytes=disk_usage(store.path).free)

    def _lost(self) -> bool:
        """Whether the log remembers workers, so that the store was there once."""
        with suppress(OmdmlError):
            return bool(lost_store(self.facts))
        return False

    def _log(self) -> LogStatus:
        log = self.configuration.log
        if isinstance(log, FileLog):
            return self._files(log)
        # In this order: a new cluster knows of no group until somebody has asked for committed offsets.
        partitions = self._partitions()
        name, workers = f"{log.topic} at {log.servers}", [str(worker) for worker in self.facts.workers]
        return LogStatus(
            kind="kafka",
            name=name,
            lag=sum(partition.lag for partition in partitions),
            workers=workers,
            partitions=partitions,
        )

    def _partitions(self) -> list[PartitionStatus]:
        """The partitions of the topic; if the store cannot be asked, the group tells how far they are learned."""
        if "store" not in self.problems:
            return [partition_status(line) for line in self.facts.lines]
        extents = self.facts.reach()
        owners = {number: str(worker) for worker in self.facts.workers for number in worker.partitions}
        return [
            PartitionStatus(
                number=extent.partition.number,
                lag=extent.end - (extent.begin if extent.committed is None else extent.committed),
                owner=owners.get(extent.partition.number, ""),
            )
            for extent in extents
        ]

    def _files(self, log: FileLog) -> LogStatus:
        if not has_begun(log.path):
            return LogStatus(kind="file", name=log.path, lag=0, workers=[], partitions=[])
        store_answers = "store" not in self.problems
        reading = self.facts.reading if store_answers else look_at_files(log, None)
        owner, lag = f"process {reading.reader}" if reading.reader else "", min(reading.events, MOST)
        # A log in files has one partition, so all models live there.
        partition = PartitionStatus(
            number=0, lag=lag, owner=owner, models=len(self.facts.names) if store_answers else None
        )
        workers, more = [owner] if owner else [], reading.events > MOST
        return LogStatus(kind="file", name=log.path, lag=lag, more=more, workers=workers, partitions=[partition])

    def _models(self) -> ModelsStatus:
        facts, names = self.facts, self.facts.names
        live = zip(names, facts.store.current_all(names), strict=True)
        pointers = {name: pointer for name, pointer in live if pointer}
        newest = max(pointers, key=lambda name: pointers[name].published_at, default=None)
        # Without its catalogue nobody can tell whether a checkpoint fits.
        served, saved = facts.served, None if "catalogues" in self.problems else facts.saved
        return ModelsStatus(
            count=len(names),
            looked=min(served.looked, saved.looked if saved else 0),
            newest=newest,
            newest_version=pointers[newest].version if newest else None,
            newest_at=pointers[newest].published_at if newest else None,
            waiting=list(saved.waits) if saved else [],
            withheld=[*served.long_withheld, *served.withheld],
            pinned=[name for name, pointer in pointers.items() if pointer.pinned],
            not_begun=[name for name in self.configuration.models if not is_pattern(name) and name not in names],
        )

    def _letters(self) -> LettersStatus:
        (book, whole), now = self.facts.letters, time.time()
        recent = Counter(letter.reason for letter in book.letters.values() if now - (letter.at or now) < HOUR_S)
        return LettersStatus(last_hour=dict(recent.most_common()), open=len(book.open), whole=whole)


def with_short_timeout(url: str) -> str:
    """The address of a store, with a time-out if that is a server and none is set."""
    if url.partition(":")[0] not in SCHEMES or "socket_timeout" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}socket_timeout={SERVER_S}&socket_connect_timeout={SERVER_S}"


def partition_status(line: PartitionReport) -> PartitionStatus:
    """A partition of a topic. A worker may have saved what came after the log was asked how far it reaches."""
    number, lag = line.extent.partition.number, max(0, line.lag)
    return PartitionStatus(number=number, lag=lag, owner=line.worker, models=line.models, wrong=line.wrong)
