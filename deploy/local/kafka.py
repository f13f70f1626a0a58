"""Runs a real Kafka node in KRaft mode, which is broker and controller."""

import hashlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.local import ports
from deploy.local.fetching import cache, fetch
from deploy.local.fetching.tool import run
from deploy.local.server import Server

STARTED = "Kafka Server started"
CLASSES = "classes.jsa"
# With only Java's quick compiler, a start costs 3.4 s of processor time instead of 5.6, and messages cost no more. With
# the archive of classes (`_class_archive`) it costs 2.1 s.
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
QUIET = ("org.apache.kafka.common.config", "kafka.server.KafkaConfig", "org.apache.kafka.common.utils.AppInfoParser")


class KafkaServer(Server):
    """A Kafka broker, from its jars.

    Parameters
    ----------
    port
        As for :class:`Server`.
    protocol
        The protocol of clients: ``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL``.
    properties
        Settings for ``server.properties``, such as mechanisms, key stores and limits. They replace the defaults of this
        class.
    client_options
        Options that kafka-python's clients need to log in, such as ``sasl_plain_password``.
    format_options
        Arguments for formatting its storage, such as ``("--add-scram", "SCRAM-SHA-256=[...]")``.
    """

    name = "kafka"
    start_limit_s = 240.0
    # The size of Java's heap in MB.
    heap_mb = 512
    java_options: Sequence[str] = FAST_START

    def __init__(
        self,
        *,
        port: int | None = None,
        protocol: str = "PLAINTEXT",
        properties: Mapping[str, str] | None = None,
        client_options: Mapping[str, Any] | None = None,
        format_options: Sequence[str] = (),
    ) -> None:
        super().__init__(port=port)
        self.controller_port = ports.free_port()
        self.protocol = protocol
        self.properties = dict(properties or {})
        self.client_options = {"security_protocol": protocol, **(client_options or {})}
        self.format_options = tuple(format_options)

    @property
    def servers(self) -> str:
        """The address, which clients call ``bootstrap_servers``."""
        return self.address

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic, and wait until every partition has a leader."""
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}
        with self._admin() as admin:
            admin.create_topics({name: wanted}, wait_for_metadata=True)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all of its records."""
        with self._admin() as admin:
            admin.delete_topics([name])

    def configs(self, *arguments: str) -> str:
        """What Kafka's script ``kafka-configs.sh`` prints: it calls this class with these arguments."""
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return run(
            [*self._java(quiet), "kafka.admin.ConfigCommand", *arguments],
            where=f"kafka-configs.sh at {self.address}",
            do="read what it says",
        )

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        # Imported late, because fetching and serving need no client.
        from kafka.admin import KafkaAdminClient

        admin = KafkaAdminClient(bootstrap_servers=self.servers, **self.client_options)
        try:
            yield admin
        finally:
            admin.close()

    def _command(self) -> tuple[Sequence[str | Path], Mapping[str, str]]:
        log = [f"-Dorg.slf4j.simpleLogger.log.{logger}=warn" for logger in QUIET]
        log += ["-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"]
        return [*self._java(*log), "kafka.Kafka", self._settings], os.environ

    def _prepare(self) -> None:
        lines = {**self._defaults(), **self.properties}
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        tool = [*self._java(), "kafka.tools.StorageTool", "format"]
        run(
            [*tool, "-t", self._cluster_id(), "-c", self._settings, *self.format_options],
            where=f"kafka at {self.address}",
            do="check the properties and format_options given",
        )

    def _cluster_id(self) -> str:
        """A new id of 22 hexadecimal digits. An id of base64 could begin with a dash, as options do."""
        return uuid.uuid4().hex[:22]

    def _java(self, *options: str) -> list[str | Path]:
        """The beginning of a command: Java with Kafka's jars, up to the name of the class to run."""
        java, jars = fetch.kafka()
        heap, temporary = f"-Xmx{self.heap_mb}m", f"-Djava.io.tmpdir={self.folder}"
        return [java, self._class_archive(), heap, *self.java_options, *options, temporary, "-cp", f"{jars}/*"]

    def _class_archive(self) -> str:
        """An option that has Java map Kafka's classes from a file. If the file does not fit, Java reads the jars."""
        java, jars = fetch.kafka()
        program = java.resolve()
        suits = hashlib.sha256(f"{program} {program.stat().st_mtime_ns} {jars}".encode()).hexdigest()[:12]
        return f"-XX:SharedArchiveFile={cache.once(f'{jars.parent.name}-classes-{suits}', _archive_classes) / CLASSES}"

    def _ready(self, log: str) -> bool:
        return STARTED in log

    @property
    def _settings(self) -> Path:
        return self.folder / "server.properties"

    def _defaults(self) -> dict[str, str]:
        """Settings for a single node that starts fast and needs little memory."""
        controller = f"{ports.HOST}:{self.controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{self.protocol}://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"{self.protocol}://{self.address}",
            "inter.broker.listener.name": self.protocol,
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
            ),
            "log.dirs": str(self.data / "logs"),
            "auto.create.topics.enable": "false",
            "num.partitions": "1",
            "default.replication.factor": "1",
            "min.insync.replicas": "1",
            "offsets.topic.num.partitions": "2",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # Without clients, a node takes 1.5 % of a core. It took 2.2 % with five heartbeats in two seconds, and with
            # the default of the first line, which has it write an empty record to itself twice a second.
            "metadata.max.idle.interval.ms": "0",
            "broker.heartbeat.interval.ms": "1000",
            # After a kill, a restarted node waits this long for its old self.
            "broker.session.timeout.ms": "3000",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "log.cleaner.dedupe.buffer.size": "4194304",
            "num.network.threads": "2",
            "num.io.threads": "4",
        }


class _Archiving(KafkaServer):
    """A server that writes the classes that it loaded into a file when it ends."""

    def __init__(self, archive: Path) -> None:
        super().__init__()
        self._archive = archive

    def _class_archive(self) -> str:
        return f"-XX:ArchiveClassesAtExit={self._archive}"


def _archive_classes(into: Path) -> None:
    with _Archiving(into / CLASSES) as server:
        # Clients' requests need classes too.
        server.create_topic("any")
