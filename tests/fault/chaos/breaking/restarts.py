"""Servers that end and come back: the broker, the store with its memory, the store without it."""

from __future__ import annotations

from random import Random

from deploy.local import Server
from tests.fault.chaos.service import LIMIT_S, WORKERS, Service

SENTENCE = "learn again: omdml topics rewind"


def broker(service: Service, chance: Random) -> None:
    """Kafka is stopped, or killed, and started again."""
    restart(service.servers.kafka, chance)


def store(service: Service, chance: Random) -> None:
    """Valkey is stopped, or killed, and started again with what it acknowledged."""
    restart(service.servers.valkey, chance)


def store_lost(service: Service, chance: Random) -> None:
    """Valkey comes back empty. The workers must stop and say so; then the operator does what their sentence says."""
    restart(service.servers.forgetful, chance)
    for worker in service.workers:
        assert worker.wait(LIMIT_S) == 3, worker.said[-2000:]
        assert SENTENCE in worker.said, worker.said[-2000:]
    rewind = service.start_process("node", "omdml.workers.cli", "topics", "rewind", "--yes")
    assert rewind.wait(LIMIT_S) == 0, rewind.said
    for number in range(WORKERS):
        service.start(number)


def restart(server: Server, chance: Random) -> None:
    """End a server in one of the two ways there are, and start it."""
    chance.choice([server.stop, server.kill])()
    server.start()
