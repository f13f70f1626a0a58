"""From configuration to running parts: the one place that knows every class."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from omdml.errors import CatalogueError, ConfigurationError, SourceError, StoreError, StoreRefused
from streams.catalogues.folder import open_catalogue
from streams.files.bystander import FileBystander
from streams.files.source import FileSink, FileSource
from streams.kafka.extents import Extent, Member, extents, members
from streams.kafka.options import KafkaOptions
from streams.kafka.routed import RoutedSource
from streams.kafka.router import Router, Targets
from streams.kafka.sink import KafkaSink
from streams.kafka.source import KafkaSource
from streams.kafka.topic import create_topic, look_up
from streams.kafka.transaction import KafkaTransactions
from streams.letters import DeadLetters
from streams.partitioners import PARTITIONERS
from streams.protocols import Catalogue, Partition, Record, Sink, Source, Store
from streams.stores.opening import open_store
from workers.access import check_reach
from workers.config import Configuration, FileLog, KafkaLog
from workers.current import Current
from workers.growth import Home
from workers.learner import LearnerWorker
from workers.lifecycle import address, platform
from workers.metrics import WorkerMetrics
from workers.node import RetrievalNode
from workers.replay import read_whole
from workers.resending import FileSender, KafkaSender, Sender
from workers.residents import Allowance, Residents
from workers.routing import RouterMetrics, key_of
from workers.server import serve
from workers.services import Services
from workers.specs import Retentions, Specs
from workers.topics import Line, survey

MEGABYTE = 1_000_000


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
    return KafkaSource(
        connection(log), topic=log.topic, group=f"{log.group}.replay.{uuid.uuid4().hex}", partitioner=log.partitioner
    )


def open_sink(log: FileLog | KafkaLog) -> Sink:
    """The feedback log, to write; raises SourceError."""
    if isinstance(log, FileLog):
        return FileSink(log.path)
    return KafkaSink(connection(log), topic=log.topic, partitioner=log.partitioner)


def create_log(log: FileLog | KafkaLog, partitions: int) -> str | None:
    """Create the topic of a Kafka log, fit for feedback; its name, or None where it is there. Raises SourceError."""
    if isinstance(log, FileLog):
        raise ConfigurationError("log.kind is 'file': a log in files needs no topic")
    return log.topic if create_topic(connection(log), log.topic, partitions=partitions) else None


def look_at_topic(log: FileLog | KafkaLog) -> tuple[list[Extent], Home]:
    """How far a Kafka log reaches and is read, and where the partitioner sends a model's events; raises SourceError."""
    if isinstance(log, FileLog):
        raise ConfigurationError("log.kind is 'file': a log in files has no topic")
    found, partition_of = extents(connection(log), log.topic, log.group), PARTITIONERS[log.partitioner]

    def home(name: str, partitions: int | None = None, /) -> Partition:
        return found[partition_of(name.encode(), partitions or len(found))].partition

    return found, home


def workers_of(log: FileLog | KafkaLog) -> list[Member]:
    """The workers that read the topic just now, none of a log in files; raises SourceError."""
    return members(connection(log), log.topic, log.group) if isinstance(log, KafkaLog) else []


def survey_topic(configuration: Configuration) -> list[Line]:
    """Every partition of the topic, beside what the store and the group know of it; raises SourceError, StoreError."""
    found, home = look_at_topic(configuration.log)
    return survey(found, open_stores(configuration), home, workers_of(configuration.log))


def read_from(log: FileLog | KafkaLog, accept_gap: bool, starts: Mapping[Partition, int]) -> Iterator[list[Record]]:
    """The feedback log from these offsets on, beside its group; raises SourceError."""
    return read_whole(open_bystander(log), starts, accept_gap)


def require_stopped(log: FileLog | KafkaLog) -> None:
    """Raise ConfigurationError where a worker reads the topic just now."""
    if found := workers_of(log):
        told = ", ".join(map(str, found))
        raise ConfigurationError(f"group {log.group!r} has members ({told}): stop the workers first")


def open_letters(log: FileLog | KafkaLog) -> DeadLetters:
    """The dead letters beside the log; the topic of their own is created unless the configuration names one."""
    if isinstance(log, FileLog):
        return DeadLetters(FileSink(log.letters))
    if not log.letters:
        create_topic(connection(log), letters_topic(log))
    sink = KafkaSink(connection(log), topic=letters_topic(log))
    return DeadLetters(sink, sink.max_message_bytes)


def letters_topic(log: KafkaLog) -> str:
    """Where the dead letters of a topic are."""
    return log.letters or f"{log.topic}.letters"


def open_letters_to_read(log: FileLog | KafkaLog) -> Source | None:
    """The dead letters, to read; None where there never was one. Raises SourceError."""
    if isinstance(log, KafkaLog):
        return open_bystander(msgspec.structs.replace(log, topic=letters_topic(log)))
    return open_bystander(msgspec.structs.replace(log, path=log.letters)) if Path(log.letters).exists() else None


def open_sender(log: FileLog | KafkaLog) -> Sender:
    """What sends the events of dead letters again; raises SourceError."""
    if isinstance(log, KafkaLog):
        letters = letters_topic(log)
        return KafkaSender(KafkaTransactions(connection(log), f"omdml.{letters}", log.partitioner), log.topic, letters)
    return FileSender(open_sink(log), FileSink(log.letters), read_whole(open_bystander(log)))


def build_router(log: FileLog | KafkaLog, origin: str, registry: CollectorRegistry, accept_gap: bool) -> Router:
    """A router from the topic ``origin`` into the feedback log; raises ConfigurationError, SourceError."""
    if isinstance(log, FileLog):
        raise ConfigurationError("log.kind is 'file': omdml route copies one topic of Kafka into another")
    letters = letters_topic(log)
    if origin in (log.topic, letters):
        what = "log.topic" if origin == log.topic else "the topic of the dead letters"
        raise ConfigurationError(f"--from {origin!r} is {what} itself: expected the topic that unkeyed events come by")
    options, group = connection(log), f"{log.group}.route.{origin}"
    if look_up(options, origin) is None:
        raise SourceError(
            f"Kafka at {log.servers} has no topic {origin!r}, which --from names; correct it, or create the topic: "
            f"kafka-topics.sh --create --topic {origin} --partitions N --bootstrap-server {log.servers}"
        )
    if not log.letters:
        create_topic(options, letters)
    targets = Targets(log.topic, letters).measured(options)
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
    return KafkaOptions(**{name: value for name, value in msgspec.structs.asdict(log).items() if name in fields})


def open_stores(configuration: Configuration) -> Store:
    """Checkpoints and snapshots; raises StoreRefused where they let us not in. One that is away is waited for."""
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
    opened: dict[str, Catalogue] = {}
    for name, config in configuration.catalogues.items():
        try:
            opened[name] = open_catalogue(config.path)
        except CatalogueError as error:
            raise CatalogueError(f"catalogues.{name}: {error}") from error
    return opened


def specs(configuration: Configuration) -> Specs:
    """The configured models; raises ConfigurationError where there is none."""
    if not configuration.models:
        raise ConfigurationError("no model is configured: add [models.NAME], or pass --catalogue PATH --model NAME")
    return Specs(configuration, open_catalogues(configuration))


def build_worker(configuration: Configuration, registry: CollectorRegistry, accept_gap: bool = False) -> LearnerWorker:
    """A worker, connected to everything."""
    models, limits, log = specs(configuration), configuration.worker, configuration.log
    services = Services(
        store=open_stores(configuration),
        source=open_source(configuration.log),
        letters=open_letters(configuration.log),
        specs=models,
        metrics=WorkerMetrics(registry),
        platform=platform(),
        clock=time.monotonic,
        accept_gap=accept_gap,
        residents=Residents(limits.memory_mb * MEGABYTE),
        allowance=Allowance(limits.save_mb_s * MEGABYTE, limits.checkpoint_interval_s),
    )
    hand_over_s = log.session_timeout_s / 3 if isinstance(log, KafkaLog) else math.inf
    return LearnerWorker(services, limits, accept_gap, hand_over_s)


def serve_node(configuration: Configuration) -> None:
    """Run a node with its HTTP server until a signal."""
    current = Current(specs(configuration))
    host, port = address(configuration.node.bind, "node.bind")
    check_reach(host, configuration.node.token)
    node = RetrievalNode(
        open_stores(configuration),
        current.catalogue,
        configuration.models,
        open_sink(configuration.log),
        CollectorRegistry(),
        check=current.check,
    )
    serve(node, host, port, configuration.node.token)
