"""The servers that faults happen to: Kafka and Valkey, each with a detour that can be cut."""

from __future__ import annotations

from typing import Self

from deploy.local import KafkaServer, ValkeyServer
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

    def __init__(self, durable: bool) -> None:
        super().__init__(durable=durable)
        self.detour = Proxy(self.port)

    @property
    def url_by_detour(self) -> str:
        return f"redis://{HOST}:{self.detour.port}"

    def close(self) -> None:
        self.detour.close()
        super().close()


class Servers:
    """A broker, a Valkey that keeps what it acknowledged, and one that forgets everything when it ends."""

    def __init__(self) -> None:
        self.kafka = DetouredKafka()
        self.valkey = DetouredValkey(durable=True)
        self.forgetful = DetouredValkey(durable=False)

    def start(self) -> None:
        """Start those that do not run."""
        for server in (self.kafka, self.valkey, self.forgetful):
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
        """End all of them."""
        for server in (self.kafka, self.valkey, self.forgetful):
            server.close()
