"""Finds ports of the loopback address that no process listens on."""

import random
import socket

from deploy.local.errors import ServiceError

HOST = "127.0.0.1"
# Below the range from which Linux gives ports to clients. So no client takes the port of a server that is down for a
# moment, and a client that tries the closed port cannot connect to itself.
FIRST, LAST = 20_000, 32_000
TRIES = 200
# Ports that were returned to this process already: a server that is down for a moment keeps its port.
_given: set[int] = set()


def free_port() -> int:
    """A port on which nobody listens; raises ServiceError if 200 tries find none."""
    for _ in range(TRIES):
        port = random.SystemRandom().randrange(FIRST, LAST)
        if port not in _given and is_free(port):
            _given.add(port)
            return port
    raise ServiceError(
        f"none of {TRIES} ports tried is free", where=f"{HOST}:{FIRST}-{LAST}", do="end some of the servers there"
    )


def is_free(port: int) -> bool:
    """Whether a server could listen on `port`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
