"""What there is to know about an installation, gathered once: the doctor judges it, ``omdml status`` shows it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property

from omdml.streams.files.reader import has_begun
from omdml.streams.kafka.safety import topic_safety
from omdml.streams.letters import Book, read_book
from omdml.streams.placement import Placement
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Store
from omdml.streams.stores.redis.safety import ServerSafety
from omdml.streams.topic_extents import Extent, Member
from omdml.workers.configuration.config import Configuration, FileLog
from omdml.workers.configuration.specs import Specs
from omdml.workers.doctor.checks import checkpoints, durability, serving
from omdml.workers.doctor.checks.waiting_events import Reading, look_at_files
from omdml.workers.operate.topics import PartitionReport, survey
from omdml.workers.versions.serving import catalogue_kinds
from omdml.workers.wiring.dead_letters import newest_letters
from omdml.workers.wiring.feedback_log import LOOK_S, log_extents, waiting_since
from omdml.workers.wiring.kafka_topic import connection, workers_of
from omdml.workers.wiring.models import open_catalogues, open_specs
from omdml.workers.wiring.stores import open_stores


class Facts:
    """The facts. Each is read when it is first needed, and then kept. Every property raises what reading it raises.

    Parameters
    ----------
    configuration
        What is looked at.
    look_s
        Seconds to spend on each of these: all models' checkpoints, all that nodes serve, dead letters. None means as
        many as the doctor takes. If it is given, events that wait in the log are not read.

    Attributes
    ----------
    readable
        Whether the log can be asked how far it reaches. If not, checkpoints are not compared with it.
    opened
        Whether all catalogues can be opened; without them, nobody can tell whether a checkpoint fits.
    """

    def __init__(self, configuration: Configuration, look_s: float | None = None) -> None:
        self.configuration = configuration
        self.look_s = look_s
        self.readable = self.opened = True

    @cached_property
    def specs(self) -> Specs:
        """The models on their catalogues; raises ConfigurationError, CatalogueError."""
        return open_specs(self.configuration)

    @property
    def catalogues(self) -> Mapping[str, Catalogue]:
        """The catalogues by name; raises CatalogueError."""
        return self.specs.catalogues if self.configuration.models else open_catalogues(self.configuration)

    @cached_property
    def store(self) -> Store:
        """The store; raises StoreRefused. Whether it can be reached shows only when ``names`` is read."""
        return open_stores(self.configuration)

    @cached_property
    def names(self) -> list[str]:
        """Names of the models that the store holds; raises StoreError."""
        return self.store.models()

    @cached_property
    def safety(self) -> ServerSafety | None:
        """What the store's server promises, None if it is no server; raises StoreError."""
        return durability.safety_of(self.configuration.store.url)

    @cached_property
    def workers(self) -> list[Member]:
        """The members of the group, none of a log in files; raises SourceError."""
        return workers_of(self.configuration.log)

    @cached_property
    def placement(self) -> Placement | None:
        """Where models live, None before the first worker; raises StoreError."""
        return self.store.placement(self.lines[0].extent.partition.topic_id)

    @cached_property
    def lines(self) -> list[PartitionReport]:
        """The partitions of a topic, beside what the store and the group know of them."""
        return survey(self.reach, self.store, lambda: self.workers)

    @cached_property
    def since(self) -> dict[int, float]:
        """When the first event that waits in a partition came; raises SourceError."""
        log = self.configuration.log
        if self.look_s or isinstance(log, FileLog):
            return {}
        return waiting_since(log, self.lines)

    @cached_property
    def retention_s(self) -> float | None:
        """For how long the topic keeps events, None if for ever, or if it was not asked; raises SourceError."""
        log = self.configuration.log
        if self.look_s or isinstance(log, FileLog):
            return None
        return topic_safety(connection(log), log.topic).retention_s

    @cached_property
    def reading(self) -> Reading:
        """How a log in files is read."""
        return look_at_files(self._file_log, self.store)

    @cached_property
    def letters(self) -> tuple[Book, bool]:
        """The newest dead letters, and whether these are all; raises SourceError."""
        records, whole = newest_letters(self.configuration.log, self.look_s or LOOK_S)
        return read_book(records), whole

    @cached_property
    def saved(self) -> checkpoints.SavedModels:
        """What is saved of the models, compared with log and configuration."""
        look_s = self.look_s or checkpoints.LOOK_S
        return checkpoints.look_at_checkpoints(self.specs, self.store, self.names, self.reach, look_s)

    @cached_property
    def served(self) -> serving.ServedModels:
        """What nodes can serve of the models."""
        kinds, look_s = catalogue_kinds(self.configuration), self.look_s or serving.LOOK_S
        return serving.look_at_serving(self.store, self.names, kinds, time.time(), look_s)

    def reach(self) -> list[Extent]:
        """How far the log reaches now; raises SourceError. A log in files that nobody opened yet has no identity."""
        log = self.configuration.log
        if not self.readable:
            return []
        if isinstance(log, FileLog) and not has_begun(log.path):
            return [Extent(Partition("", 0), 0, 0, None)]
        return log_extents(log)

    @property
    def _file_log(self) -> FileLog:
        log = self.configuration.log
        assert isinstance(log, FileLog)
        return log
