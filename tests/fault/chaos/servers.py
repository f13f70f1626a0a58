"""The servers that faults happen to: Kafka and Valkey, each with a detour that can be cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from deploy.local import KafkaCluster, KafkaServer, ReplicatedValkey, ValkeyServer
from deploy.local.ports import free_port
from tests.fault.chaos.proxy import HOST, Proxy


class DetouredKafka(KafkaServer):
    """A broker that clients reach directly, or by ``detour``."""

    def __init__(self) -> None:
        super().__init__()
        self._far_port = free_port()
        self.detour = Proxy(self._far_port)

    @property
    def servers_by_detour(self) -> str:
        """What clients call ``bootstrap_servers`` there; the broker tells them no other address."""
        return f"{HOST}:{self.detour.port}"

    def _defaults(self) -> dict[str, str]:
        lines = super()._defaults()
        lines["listeners"] += f",FAR://{HOST}:{self._far_port}"
        lines["advertised.listeners"] += f",FAR://{self.servers_by_detour}"
        lines["listener.security.protocol.map"] += ",FAR:PLAINTEXT"
        return lines

    def close(self) -> None:
        self.detour.close()
        super().close()


class DetouredValkey(ValkeyServer):
    """A Valkey that clients reach directly, or by ``detour``."""

    def __init__(self, durable: bool = True, arguments: Sequence[str] = ()) -> None:
        super().__init__(durable=durable, arguments=arguments)
        self.detour = Proxy(self.port)

    @property
    def url_by_detour(self) -> str:
        return f"redis://{HOST}:{self.detour.port}"

    def close(self) -> None:
        self.detour.close()
        super().close()


class MovingValkey(ReplicatedValkey):
    """A primary and its replica behind one address, which goes along if the replica takes over."""

    def __init__(self) -> None:
        super().__init__()
        self.detour = Proxy(self.primary.port)

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.detour.port}"

    url_by_detour = url

    def take_over(self) -> None:
        super().take_over()
        self.detour.target = self.primary.port

    def close(self) -> None:
        self.detour.close()
        super().close()


class Servers:
    """A broker, and Valkeys that keep and forget different things; a store is started when it is first asked for.

    Attributes
    ----------
    valkey, always
        They have an append-only file, written to disk every second, and before each acknowledgement.
    saving
        It has no such file, and saves everything every second or so.
    forgetful
        It forgets everything when it ends.
    replicated
        A primary with a replica.
    """

    def __init__(self) -> None:
        self.kafka = DetouredKafka()
        self.valkey = DetouredValkey(arguments=("--appendfsync", "everysec"))
        self.always = DetouredValkey()
        self.saving = DetouredValkey(durable=False, arguments=("--save", "1 1"))
        self.forgetful = DetouredValkey(durable=False)
        self.replicated = MovingValkey()
        self._asked_for: list[Any] = [self.kafka]

    @property
    def far_log(self) -> str:
        """What clients call ``bootstrap_servers`` if they take the detour."""
        return self.kafka.servers_by_detour

    def store(self, name: str) -> DetouredValkey | MovingValkey:
        """The store of this name, which runs."""
        server: DetouredValkey | MovingValkey = getattr(self, name)
        if server not in self._asked_for:
            self._asked_for.append(server)
        server.start()
        return server

    def start(self) -> None:
        """Start what was asked for, and does not run."""
        for server in self._asked_for:
            server.start()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for server in (self.kafka, self.valkey, self.always, self.saving, self.forgetful, self.replicated):
            server.close()


class ClusterServers(Servers):
    """The same with a cluster of three brokers, which goes on running when this is closed, and has no detour."""

    def __init__(self, cluster: KafkaCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._asked_for = [cluster]

    @property
    def far_log(self) -> str:
        return self._cluster.servers

    def __enter__(self) -> Self:
        self.kafka = self._cluster
        return super().__enter__()

    def close(self) -> None:
        self.kafka = DetouredKafka()
        super().close()
