"""Runs a real PostgreSQL with pgvector."""

import os
import pwd
import secrets
import shutil
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from deploy.local import ports
from deploy.local.fetching import fetch
from deploy.local.fetching.tool import run
from deploy.local.server import Server

# PostgreSQL refuses to run as root.
ORDINARY_USER = "nobody"
SETTINGS = {
    "listen_addresses": ports.HOST,
    "unix_socket_directories": "",
    "max_connections": "40",
    # With mmap, a killed server leaves nothing outside its folder.
    "dynamic_shared_memory_type": "mmap",
    # Without fsync a crash of the machine may lose data, which are thrown away anyway. A kill of the process does not.
    "fsync": "off",
}
READY = "database system is ready to accept connections"


class PostgresServer(Server):
    """A PostgreSQL whose extension ``vector`` can be created.

    Parameters
    ----------
    port
        As for :class:`Server`.

    Attributes
    ----------
    user, password, database
        The name and password of the superuser, and the database that exists from the start.
    """

    name = "postgres"
    start_limit_s = 30.0
    stop_limit_s = 10.0
    # SIGTERM waits until all clients have gone.
    stop_signal = signal.SIGINT
    user, database = "omdml", "postgres"

    def __init__(self, *, port: int | None = None) -> None:
        super().__init__(port=port)
        self.password = secrets.token_hex(8)

    @property
    def url(self) -> str:
        """The address for clients, with user and password."""
        return f"postgresql://{self.user}:{self.password}@{self.address}/{self.database}"

    def kill(self) -> None:
        """Kill the server and the processes of its connections with SIGKILL, as a crash would. Its data stay."""
        children = []
        if self.running:
            with suppress(OSError):
                children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        super().kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)

    def _prepare(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        if os.geteuid() == 0:
            ordinary = pwd.getpwnam(ORDINARY_USER)
            # The ordinary user may have no access to the virtual environment, so it gets a copy of the programs.
            self._copy_program()
            for path in (self.folder, self.data, secret):
                os.chown(path, ordinary.pw_uid, ordinary.pw_gid)
        initdb: list[str | Path] = [
            *self._as_ordinary_user(), str(self._program() / "initdb"), "-D", str(self.data), "-U", self.user,
            "--pwfile", str(secret), "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync",
        ]  # fmt: skip
        run(initdb, where=f"{self.name} at {self.address}", do="see what initdb wrote", cwd=self.folder)

    def _command(self) -> tuple[Sequence[str | Path], Mapping[str, str]]:
        settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command: list[str | Path] = [self._program() / "postgres", "-D", self.data, "-p", str(self.port), *settings]
        return [*self._as_ordinary_user(), *command], os.environ

    def _ready(self, log: str) -> bool:
        if READY not in log:
            return False
        with suppress(OSError), socket.create_connection((ports.HOST, self.port), timeout=1.0):
            return True
        return False

    def _program(self) -> Path:
        """The folder with its programs: the copy if there is one, otherwise the installed ones."""
        installed = fetch.postgres()
        copied = self._copied(installed)
        return copied if copied.is_dir() else installed

    def _copied(self, path: Path) -> Path:
        """The path of the copy of a file in the environment's packages."""
        packages = fetch.postgres().parents[2]
        return self.folder / "program" / path.relative_to(packages)

    def _copy_program(self) -> None:
        """Copy programs, files and libraries in the same layout, because they find each other by relative paths."""
        root = fetch.postgres().parent
        libraries = root.parent.with_suffix(".libs")
        for source in (root / "bin", root / "lib", root / "share", libraries):
            if source.is_dir():
                shutil.copytree(source, self._copied(source), dirs_exist_ok=True)

    def _as_ordinary_user(self) -> list[str]:
        """If this process runs as root, the beginning of a command that runs as an ordinary user.

        The command still ends with this process.
        """
        if os.geteuid() != 0:
            return []
        return ["setpriv", f"--reuid={ORDINARY_USER}", "--regid=nogroup", "--clear-groups", "--pdeathsig=KILL"]
