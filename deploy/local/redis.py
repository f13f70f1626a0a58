"""Runs a real redis-server, or a real Valkey."""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.local import ports
from deploy.local.fetching import fetch
from deploy.local.fetching.tool import run
from deploy.local.server import Server

# Answers of a server that serves. -LOADING is not among them, because it still reads its data.
SERVES = (b"+PONG", b"-NOAUTH", b"-DENIED")


class RedisServer(Server):
    """A redis-server.

    Parameters
    ----------
    port
        As for :class:`Server`.
    durable
        Whether it writes an append-only file. Then neither a restart nor a kill loses what it acknowledged. Otherwise
        it starts empty each time.
    arguments
        Arguments for the server, such as ``("--maxmemory", "64mb")``. They replace the defaults of this class.
    settings
        A file of settings, such as redis.conf, to start it with. ``CONFIG REWRITE`` writes into it.
    """

    name = "redis"
    start_limit_s = 20.0
    stop_limit_s = 10.0

    def __init__(
        self,
        *,
        port: int | None = None,
        durable: bool = True,
        arguments: Sequence[str] = (),
        settings: Path | None = None,
    ) -> None:
        super().__init__(port=port)
        self.durable = durable
        self.arguments = tuple(arguments)
        self.settings = settings

    @property
    def url(self) -> str:
        """The address for clients. If a password or TLS is set, make another one from `port`."""
        return f"redis://{self.address}"

    def flush(self) -> None:
        """Remove all keys. Connections and scripts stay."""
        answer = self._ask(b"FLUSHALL\r\n", wait_s=self.start_limit_s)
        if not answer.startswith(b"+OK"):
            raise self._error(
                f"FLUSHALL was answered {answer[:80]!r}, expected +OK", "flush it with a client of your own"
            )

    def ask(self, command: str) -> str:
        """Send a command; returns the first 4,096 bytes of the answer."""
        return self._ask(f"{command}\r\n".encode(), wait_s=self.start_limit_s).decode(errors="replace")

    def cli(self, *arguments: str) -> str:
        """What ``redis-cli`` prints, the program that comes with redis-server."""
        program = fetch.redis()
        command: list[str | Path] = [program.path.with_name("redis-cli"), "-p", str(self.port), *arguments]
        return run(
            command,
            where=f"redis-cli at {self.address}",
            do="install the package redis-tools if redis-cli is missing",
            env=program_environment(program),
        )

    def _program(self) -> fetch.Program:
        return fetch.redis()

    def _command(self) -> tuple[Sequence[str | Path], Mapping[str, str]]:
        program = self._program()
        environment = program_environment(program)
        # "everysec" is not enough: while the disk is busy, acknowledged writes wait in memory, and a kill loses them.
        durable = ("--appendonly", "yes", "--appendfsync", "always") if self.durable else ("--appendonly", "no")
        chosen = ("--bind", ports.HOST, "--port", str(self.port), "--daemonize", "no", "--save", "", *durable)
        file = [self.settings] if self.settings else []
        return [program.path, *file, *chosen, *self.arguments], environment

    def _ready(self, log: str) -> bool:
        try:
            return self._ask(b"PING\r\n", wait_s=1.0).startswith(SERVES)
        except OSError:
            return False

    def _ask(self, line: bytes, *, wait_s: float) -> bytes:
        with socket.create_connection((ports.HOST, self.port), timeout=wait_s) as connection:
            connection.sendall(line)
            return connection.recv(4096)


def program_environment(program: fetch.Program) -> dict[str, str]:
    """The environment in which a program finds its libraries."""
    libraries = {"LD_LIBRARY_PATH": ":".join(str(folder) for folder in program.libraries)} if program.libraries else {}
    return {**os.environ, **libraries}


class ValkeyServer(RedisServer):
    """A Valkey server, which has the protocol of Redis. The parameters are those of :class:`RedisServer`."""

    name = "valkey"

    def _program(self) -> fetch.Program:
        return fetch.valkey()
