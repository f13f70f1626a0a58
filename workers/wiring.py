"""Makes running parts of a configuration: the one place that knows every class."""

from __future__ import annotations

import math
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from omdml.errors import CatalogueError, ConfigurationError, SourceError, StoreError, StoreRefused
from omdml.streams.extents import Extent, Member
from omdml.streams.files.group_state import GroupState
from omdml.streams.files.log import OFFSET_BITS, reaching
from omdml.streams.files.newest import newest_records as newest_in_files
from omdml.streams.files.reader import open_log
from omdml.streams.files.resending import FileSender
from omdml.streams.files.source import SEGMENT_BYTES, FileSink, FileSource
from omdml.streams.files.ungrouped import FileBystander
from omdml.streams.kafka.extents import extents, members
from omdml.streams.kafka.newest import first_records
from omdml.streams.kafka.newest import newest_records as newest_in_topic
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.reading.source import KafkaSource
from omdml.streams.kafka.resending import KafkaSender
from omdml.streams.kafka.routing.beginning import Begin, decide_beginning
from omdml.streams.kafka.routing.origin import RoutedSource
from omdml.streams.kafka.routing.router import Router, Targets
from omdml.streams.kafka.routing.transaction import KafkaTransactions
from omdml.streams.kafka.safety import groups
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.kafka.topic import create_topic, grow_topic, look_up
from omdml.streams.letters import Book, DeadLetters, Sender, read_book
from omdml.streams.newest import EVENTS, Newest
from omdml.streams.placement import Placement
from omdml.streams.protocols import Catalogue, Partition, Record, Sink, Source, Store
from omdml.streams.stores.opening import open_store
from omdml.workers.configuration.access import check_reach
from omdml.workers.configuration.config import Configuration, FileLog, KafkaLog
from omdml.workers.configuration.process import address, platform
from omdml.workers.events.routing import RouterMetrics, key_of
from omdml.workers.operate.topics import Line, check_growth, survey

# Learners and metrics bring numba and scipy, a second of processor. A router and most commands need neither, so what
# leads to them is imported in the functions that build workers and nodes.
if TYPE_CHECKING:
    from omdml.workers.configuration.specs import Specs
    from omdml.workers.learning.worker import LearnerWorker
    from omdml.workers.node.attributes.table import Attributes
    from omdml.workers.node.pictures import Pictures

MEGABYTE = 1_000_000
# Letters of a partition of their topic, and bytes of their files.
LETTERS, LETTERS_BYTES = 20_000, 32 * MEGABYTE
# Seconds that reading either may take.
LOOK_S = 5.0
_log = structlog.get_logger(__name__)
# Segments of dead letters: an eighth of them is deleted at a time.
KEPT_SEGMENTS = 8


def open_source(log: FileLog | KafkaLog) -> Source:
    """The feedback log, to read; raises SourceError."""
    if isinstance(log, FileLog):
        return FileSource(log.path, group=log.group)
    return KafkaSource(
        connection(log),
        topic=log.topic,
        group=log.group,
        group_instance_id=log.member,
        session_timeout_s=log.session_timeout_s,
        partitioner=log.partitioner,
    )


def names(log: FileLog | KafkaLog) -> dict[str, str | None]:
    """What a log and who reads it are called, for the lines of a process."""
    if isinstance(log, FileLog):
        return {"path": log.path}
    return {"topic": log.topic, "group": log.group, "member": log.member}


def open_bystander(log: FileLog | KafkaLog) -> Source:
    """The feedback log, to read beside its group without being seen by it; raises SourceError."""
    if isinstance(log, FileLog):
        return FileBystander(log.path)
    source = KafkaSource(
        connection(log), topic=log.topic, group=f"{log.group}.replay.{uuid.uuid4().hex}", partitioner=log.partitioner
    )
    source.command = "omdml replay"
    return source


def open_sink(log: FileLog | KafkaLog) -> Sink:
    """The feedback log, to write; raises SourceError."""
    if isinstance(log, FileLog):
        return FileSink(log.path)
    return KafkaSink(connection(log), topic=log.topic, partitioner=log.partitioner)


def create_log(log: FileLog | KafkaLog, partitions: int) -> tuple[str, bool, int]:
    """Create the topic of a Kafka log, fit for feedback: its name, whether it was created, how many partitions it has.

    Raises SourceError.
    """
    if isinstance(log, FileLog):
        raise ConfigurationError("log.kind is 'file': a log in files needs no topic")
    made = create_topic(connection(log), log.topic, partitions=partitions)
    found = None if made else look_up(connection(log), log.topic)
    return log.topic, made, found.partitions if found else partitions


def grow_log(configuration: Configuration, partitions: int) -> tuple[int, int]:
    """Add partitions to the topic of a Kafka log, up to so many; on how many models live, and how many there were.

    Raises ConfigurationError, SourceError, StoreError.
    """
    log = configuration.log
    if isinstance(log, FileLog):
        no_topic()
    found = look_at_topic(log)
    placement = open_stores(configuration).placement(found[0].partition.topic_id)
    homes = placement.count if placement else len(found)
    check_growth(homes, len(found), partitions)
    if partitions > len(found):
        grow_topic(connection(log), log.topic, partitions)
    return homes, len(found)


def look_at_topic(log: FileLog | KafkaLog) -> list[Extent]:
    """How far a Kafka log reaches and is read, partition by partition; raises SourceError."""
    return extents(connection(log), log.topic, log.group) if isinstance(log, KafkaLog) else no_topic()


def no_topic() -> NoReturn:
    """Raise ConfigurationError for what only a Kafka log has."""
    raise ConfigurationError(
        "log.kind is 'file': a log in files has no topic. How far it is learned: omdml doctor, and omdml doctor --audit"
    )


def partitioner(log: FileLog | KafkaLog) -> str:
    """How the senders of a log choose a partition by key."""
    return log.partitioner if isinstance(log, KafkaLog) else FileSource.partitioner


def placement(log: FileLog | KafkaLog, store: Store) -> tuple[str, Placement]:
    """A log's id and where its models live, or will when the first worker comes; raises SourceError, StoreError."""
    source = open_bystander(log)
    try:
        found = store.placement(source.topic_id)
        return source.topic_id, found or Placement.first(source.partitioner, source.partitions)
    finally:
        source.close()


def workers_of(log: FileLog | KafkaLog) -> list[Member]:
    """The workers that read the topic just now, none of a log in files; raises SourceError."""
    return members(connection(log), log.topic, log.group) if isinstance(log, KafkaLog) else []


def log_extents(log: FileLog | KafkaLog) -> list[Extent]:
    """How far each partition of the feedback log reaches; raises SourceError."""
    if isinstance(log, KafkaLog):
        return extents(connection(log), log.topic, log.group)
    files = open_log(log.path)
    with reaching(files.path):
        begin, (number, size) = files.oldest() << OFFSET_BITS, files.newest()
    return [Extent(Partition(files.topic_id, 0), begin, number << OFFSET_BITS | size, None)]


def newest_letters(log: FileLog | KafkaLog, look_s: float = LOOK_S) -> Newest:
    """The newest lines among the dead letters, in bounded time; raises SourceError."""
    part = look_s / LOOK_S
    if isinstance(log, FileLog):
        return newest_in_files(log.letters, int(part * LETTERS_BYTES))
    return newest_in_topic(connection(log), letters_topic(log), log.group, int(part * LETTERS), look_s)


def newest_events(log: KafkaLog) -> Newest:
    """The newest events of each partition of the topic, in bounded time; raises SourceError."""
    return newest_in_topic(connection(log), log.topic, log.group, EVENTS, LOOK_S)


def waiting_since(log: KafkaLog, lines: Iterable[Line]) -> dict[int, float]:
    """Of the partitions that hold events to be learned, by number: the time of the first such event, in seconds since
    the epoch, if it can be told in bounded time; raises SourceError."""
    starts = {line.extent.partition: line.extent.begin if line.mark is None else line.mark
              for line in lines if line.lag > 0}  # fmt: skip
    found = first_records(connection(log), log.topic, log.group, starts, LOOK_S)
    return {at.number: record.timestamp for at, record in found.items() if record.timestamp is not None}


def survey_topic(configuration: Configuration) -> list[Line]:
    """Every partition of the topic, beside what the store and the group know of it; raises SourceError, StoreError."""
    return survey(look_at_topic(configuration.log), open_stores(configuration), workers_of(configuration.log))


def read_log(log: FileLog | KafkaLog, placement: Placement, accept_gap: bool) -> Iterator[list[Record]]:
    """The whole feedback log as workers learn it, beside its group; raises SourceError."""
    from omdml.workers.operate.replay import read_as_placed

    return read_as_placed(lambda: open_bystander(log), placement, accept_gap)


def require_stopped(log: FileLog | KafkaLog) -> None:
    """Raise ConfigurationError if a worker reads the log just now."""
    if isinstance(log, FileLog):
        if reader := GroupState(open_log(log.path), log.group).reader():
            raise ConfigurationError(f"process {reader} learns from {log.path}: stop the worker first")
    elif found := workers_of(log):
        members = ", ".join(map(str, found))
        raise ConfigurationError(f"group {log.group!r} has members ({members}): stop the workers first")


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
    """Where the dead letters of a topic are."""
    return log.letters or f"{log.topic}.letters"


def open_letters_to_read(log: FileLog | KafkaLog) -> Source | None:
    """The dead letters, to read; None if there never was one. Raises SourceError."""
    if isinstance(log, KafkaLog):
        if not log.letters and look_up(connection(log), letters_topic(log)) is None:
            # The first worker makes the topic.
            return None
        return open_bystander(msgspec.structs.replace(log, topic=letters_topic(log)))
    return open_bystander(msgspec.structs.replace(log, path=log.letters)) if Path(log.letters).exists() else None


def read_letters(log: FileLog | KafkaLog) -> Book:
    """Everything among the dead letters; raises SourceError."""
    from omdml.workers.operate.replay import read_whole

    letters = open_letters_to_read(log)
    return read_book(record for records in (read_whole(letters) if letters else ()) for record in records)


def open_sender(log: FileLog | KafkaLog) -> Sender:
    """What sends the events of dead letters again; raises SourceError."""
    if isinstance(log, KafkaLog):
        letters = letters_topic(log)
        return KafkaSender(KafkaTransactions(connection(log), f"omdml.{letters}", log.partitioner), log.topic, letters)
    from omdml.workers.operate.replay import read_whole

    return FileSender(open_sink(log), letters_folder(log), read_whole(open_bystander(log)))


def routers_group(log: KafkaLog, origin: str) -> str:
    """The consumer group of the routers of a topic."""
    return f"{log.group}.route.{origin}"


def routed_topics(log: KafkaLog) -> list[str]:
    """The topics that routers copy into this log, as far as Kafka remembers them; raises SourceError."""
    prefix = routers_group(log, "")
    return [group.removeprefix(prefix) for group in groups(connection(log), prefix)]


def build_router(
    log: FileLog | KafkaLog,
    origin: str,
    registry: CollectorRegistry,
    accept_gap: bool,
    begin: Begin | None = None,
) -> Router:
    """A router from the topic ``origin`` into the feedback log; raises ConfigurationError, SourceError."""
    if isinstance(log, FileLog):
        raise ConfigurationError("log.kind is 'file': omdml route copies one topic of Kafka into another")
    letters = letters_topic(log)
    if origin in (log.topic, letters):
        what = "log.topic" if origin == log.topic else "the topic of the dead letters"
        raise ConfigurationError(f"--from {origin!r} is {what} itself: expected the topic that unkeyed events come by")
    options, group = connection(log), routers_group(log, origin)
    if look_up(options, origin) is None:
        raise SourceError(
            f"Kafka at {log.servers} has no topic {origin!r}, which --from names; correct it, or create the topic: "
            f"kafka-topics.sh --create --topic {origin} --partitions N --bootstrap-server {log.servers}"
        )
    if not log.letters:
        create_topic(options, letters)
    targets = Targets(log.topic, letters).measured(options)
    decide_beginning(options, origin, log.topic, group, begin)
    source = RoutedSource(
        options,
        topic=origin,
        group=group,
        group_instance_id=log.member,
        session_timeout_s=log.session_timeout_s,
    )
    name = f"{group}.{log.member or uuid.uuid4().hex}"
    metrics = RouterMetrics(registry)
    return Router(source, targets, key_of, metrics, name=name, partitioner=log.partitioner, accept_gap=accept_gap)


def connection(log: KafkaLog) -> KafkaOptions:
    """The part of a Kafka log's configuration that says how to reach the cluster."""
    fields = KafkaOptions.__struct_fields__
    found = KafkaOptions(**{name: value for name, value in msgspec.structs.asdict(log).items() if name in fields})
    if found.client_id != KafkaOptions().client_id:
        return found
    # Brokers and omdml topics status tell clients apart by this.
    return msgspec.structs.replace(found, client_id=f"{found.client_id}-{socket.gethostname()}-{os.getpid()}")


def open_stores(configuration: Configuration) -> Store:
    """Checkpoints and snapshots; raises StoreRefused if they let us not in. One that is away is waited for."""
    from omdml.workers.configuration.specs import Retentions

    store = open_store(configuration.store.url, Retentions(configuration))
    try:
        store.current(next(iter(configuration.models), ""))
    except StoreRefused:
        raise
    except StoreError:
        pass
    return store


def open_catalogues(configuration: Configuration) -> dict[str, Catalogue]:
    """Every catalogue by name; raises CatalogueError, naming which."""
    from omdml.streams.catalogues.opening import open_catalogue

    opened: dict[str, Catalogue] = {}
    for name, config in configuration.catalogues.items():
        try:
            opened[name] = open_catalogue(config.path)
        except CatalogueError as error:
            raise CatalogueError(f"catalogues.{name}: {error}") from error
    return opened


def specs(configuration: Configuration) -> Specs:
    """The configured models; raises ConfigurationError if there is none."""
    from omdml.workers.configuration.specs import Specs

    if not configuration.models:
        raise ConfigurationError("no model is configured: add [models.NAME], or pass --catalogue PATH --model NAME")
    return Specs(configuration, open_catalogues(configuration))


def build_worker(configuration: Configuration, registry: CollectorRegistry, accept_gap: bool = False) -> LearnerWorker:
    """A worker, connected to everything."""
    from omdml.workers.learning.metrics import WorkerMetrics
    from omdml.workers.learning.services import Services
    from omdml.workers.learning.worker import LearnerWorker
    from omdml.workers.model.memory_budget import Allowance, Residents
    from omdml.workers.model.newcomers import Newcomers
    from omdml.workers.telemetry.registry import ModelLabels
    from omdml.workers.telemetry.store_times import timed

    models, limits, log = specs(configuration), configuration.worker, configuration.log
    services = Services(
        store=timed(open_stores(configuration), registry),
        source=open_source(configuration.log),
        letters=open_letters(configuration.log),
        specs=models,
        metrics=WorkerMetrics(
            registry,
            ModelLabels(configuration.models, configuration.metrics.models),
            topic=log.topic if isinstance(log, KafkaLog) else log.path,
            lag_unit="offsets" if isinstance(log, KafkaLog) else "bytes",
        ),
        platform=platform(),
        clock=time.monotonic,
        accept_gap=accept_gap,
        residents=Residents(limits.memory_mb * MEGABYTE),
        newcomers=Newcomers(limits.new_models_s),
        allowance=Allowance(limits.save_mb_s * MEGABYTE, limits.checkpoint_interval_s),
    )
    hand_over_s = log.session_timeout_s / 3 if isinstance(log, KafkaLog) else math.inf
    return LearnerWorker(services, limits, accept_gap, hand_over_s)


def tell_if_empty(store: Store) -> None:
    """Say so in the log if nobody has written into a store yet: then an address may be wrong, or a disk not mounted."""
    # Of one that is away the node tells by itself.
    with suppress(StoreError):
        if not store.store_id:
            hint = "the first worker fills it; if workers have learned already, correct store.url, or mount its disk"
            _log.warning("store_is_empty", store=str(store), serving="what models begin with", hint=hint)


def serve_node(configuration: Configuration, office: Callable[..., bytes] | None = None) -> None:
    """Run a node with its HTTP server until a signal; ``office`` does what operators ask for beside searches."""
    from omdml.workers.node.catalogues import Current
    from omdml.workers.node.experiments.experiments import Experiments
    from omdml.workers.node.http.server import serve
    from omdml.workers.node.node import RetrievalNode
    from omdml.workers.telemetry.registry import new_registry
    from omdml.workers.telemetry.store_times import timed

    current = Current(specs(configuration))
    host, port = address(configuration.node.bind, "node.bind")
    check_reach(host, configuration.node.access)
    registry = new_registry()
    store = open_stores(configuration)
    tell_if_empty(store)
    node = RetrievalNode(
        timed(store, registry),
        current.catalogue,
        configuration.models,
        open_sink(configuration.log),
        registry,
        check=current.check,
        models_in_metrics=configuration.metrics.models,
        ready=configuration.node.ready,
        first=current.first,
        parent=current.parent,
        attributes=attributes_of(configuration),
        expand=configuration.expand,
    )
    access, hosts = configuration.node.access, configuration.node.hosts
    experiments = Experiments(configuration.experiments)
    serve(node, host, port, access, hosts, pictures_of(configuration), office, experiments)


def attributes_of(configuration: Configuration) -> Callable[[str], Attributes | None]:
    """Answers what is known of a model's items; raises CatalogueError if a file cannot be read."""
    from omdml.workers.node.attributes.followed import FollowedAttributes

    files = {
        name: FollowedAttributes(config.attributes)
        for name, config in configuration.catalogues.items()
        if config.attributes
    }

    def of(model: str) -> Attributes | None:
        matched = configuration.match(model)
        followed = files.get(matched[1].catalogue) if matched else None
        return followed() if followed else None

    return of


def pictures_of(configuration: Configuration) -> Callable[[str], Pictures | None]:
    """Answers where the pictures of a model's items are; raises ConfigurationError if there is no such folder."""
    from omdml.workers.node.pictures import Pictures

    folders = {
        name: Pictures(config.pictures, f"catalogues.{name}.pictures")
        for name, config in configuration.catalogues.items()
        if config.pictures
    }

    def of(model: str) -> Pictures | None:
        matched = configuration.match(model)
        return folders.get(matched[1].catalogue) if matched else None

    return of
