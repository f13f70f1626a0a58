"""A real redis-server and a real Valkey."""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.local import ports
from deploy.local.fetching import fetch
from deploy.local.server import Server

# -LOADING is not among them.
SERVES = (b"+PONG", b"-NOAUTH", b"-DENIED")


class RedisServer(Server):
    """A redis-server.

    Parameters
    ----------
    port, start_limit_s, stop_limit_s
        As for :class:`Server`.
    durable
        Whether it writes an append-only file, so that neither a restart nor a kill of the process loses what it
        acknowledged. Without it, it starts empty each time.
    arguments
        Arguments for the server, over those chosen here, such as ``("--maxmemory", "64mb")``.
    """

    name = "redis"

    def __init__(
        self,
        *,
        port: int | None = None,
        durable: bool = True,
        arguments: Sequence[str] = (),
        start_limit_s: float = 20.0,
        stop_limit_s: float = 10.0,
    ) -> None:
        super().__init__(port=port, start_limit_s=start_limit_s, stop_limit_s=stop_limit_s)
        self.durable = durable
        self.arguments = tuple(arguments)

    @property
    def url(self) -> str:
        """What clients connect to; with a password or TLS, make one of your own from `port`."""
        return f"redis://{self.address}"

    def flush(self) -> None:
        """Remove every key; connections and scripts stay."""
        answer = self._ask(b"FLUSHALL\r\n", wait_s=self.start_limit_s)
        if not answer.startswith(b"+OK"):
            raise self._error(
                f"FLUSHALL was answered {answer[:80]!r}, expected +OK", "flush it with a client of your own"
            )

    def ask(self, command: str) -> str:
        """The beginning of what it answers to a command."""
        return self._ask(f"{command}\r\n".encode(), wait_s=self.start_limit_s).decode(errors="replace")

    def _program(self) -> fetch.Program:
        return fetch.redis()

    def _command(self) -> tuple[Sequence[str | Path], Mapping[str, str]]:
        program = self._program()
        environment = dict(os.environ)
        if program.libraries:
            environment["LD_LIBRARY_PATH"] = ":".join(str(folder) for folder in program.libraries)
        # With "everysec" writes wait, acknowledged, while the disk is busy with a sync; a kill then loses them.
        durable = ("--appendonly", "yes", "--appendfsync", "always") if self.durable else ("--appendonly", "no")
        chosen = ("--bind", ports.HOST, "--port", str(self.port), "--daemonize", "no", "--save", "", *durable)
        return [program.path, *chosen, *self.arguments], environment

    def _ready(self, log: str) -> bool:
        try:
            return self._ask(b"PING\r\n", wait_s=1.0).startswith(SERVES)
        except OSError:
            return False

    def _ask(self, line: bytes, *, wait_s: float) -> bytes:
        with socket.create_connection((ports.HOST, self.port), timeout=wait_s) as connection:
            connection.sendall(line)
            return connection.recv(4096)


class ValkeyServer(RedisServer):
    """A Valkey, which speaks as Redis does; parameters as for :class:`RedisServer`."""

    name = "valkey"

    def _program(self) -> fetch.Program:
        return fetch.valkey()
