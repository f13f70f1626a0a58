"""Runs a Valkey and its replica. The replica can take over without all that the primary acknowledged."""

import time
from typing import Self

from deploy.local import ports
from deploy.local.errors import ServiceError
from deploy.local.redis import ValkeyServer
from deploy.local.started import Started

WAIT_LIMIT_S = 60.0
LOOK_EVERY_S = 0.05
# Nobody listens at this port.
NOWHERE = "1"


class ReplicatedValkey(Started):
    """A primary and one replica on loopback, both with an append-only file.

    As a context manager it is started on entry and closed on exit.

    Attributes
    ----------
    primary, replica
        The servers in these roles now; :meth:`take_over` exchanges them.
    """

    def __init__(self) -> None:
        self.primary, self.replica = ValkeyServer(), ValkeyServer()

    @property
    def running(self) -> bool:
        """False also if only one of the two servers is running."""
        return self.primary.running and self.replica.running

    def start(self) -> Self:
        """Start both servers if they are not running, and wait until the replica has everything."""
        if not self.running:
            self.primary.start()
            self.replica.start()
            self.go_on_replicating()
        return self

    def stop_replicating(self) -> None:
        """Cut the replica off from the primary, as if the network between them was down."""
        self._send(self.replica, f"REPLICAOF {ports.HOST} {NOWHERE}")

    def go_on_replicating(self) -> None:
        """Have the replica follow the primary, and wait until it has everything."""
        self._send(self.replica, f"REPLICAOF {ports.HOST} {self.primary.port}")
        deadline = time.monotonic() + WAIT_LIMIT_S
        while "master_link_status:up" not in self.replica.ask("INFO replication"):
            if time.monotonic() > deadline:
                problem = f"it did not catch up with primary {self.primary.address} within {WAIT_LIMIT_S:.0f} s"
                raise ServiceError(problem, where=f"replica {self.replica.address}", do="see its log")
            time.sleep(LOOK_EVERY_S)

    def take_over(self) -> None:
        """Kill the primary. From now on the replica is the primary, with what it has."""
        self.primary.kill()
        self._send(self.replica, "REPLICAOF NO ONE")
        self.primary, self.replica = self.replica, self.primary

    def rejoin(self) -> None:
        """Start the killed server as an empty replica, and wait until it has everything."""
        self.replica.restart(keep_data=False)
        self.go_on_replicating()

    def resume(self) -> None:
        """Let both servers go on if they were paused."""
        self.primary.resume()
        self.replica.resume()

    def close(self) -> None:
        """End both, and remove their folders."""
        self.primary.close()
        self.replica.close()

    def _send(self, server: ValkeyServer, command: str) -> None:
        answer = server.ask(command)
        if not answer.startswith("+OK"):
            problem = f"{command} was answered {answer[:80]!r}, expected +OK"
            raise ServiceError(problem, where=f"valkey at {server.address}", do="see its log")
