"""Runs a real server as a child of this process: it can be started, stopped, killed, paused and restarted."""

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from deploy.local import ports
from deploy.local.errors import ServiceError
from deploy.local.spawn import spawn
from deploy.local.started import Started

LAST_LINES = 20
LOOK_EVERY_S = 0.02
PREFIX = "omdml-local-"
OWNER = "owner"


class Server(Started):
    """One server on loopback, with its data in a temporary folder.

    As a context manager it is started on entry and closed on exit. It ends with this process at the latest.

    Parameters
    ----------
    port
        Port to listen on. None picks a free one, which stays the same over restarts.

    Attributes
    ----------
    port, folder, data, log
        Its port, its temporary folder, the folder of its data in there, and the file of its log.
    """

    name = "server"
    # The signal that asks the server to end in an orderly way.
    stop_signal = signal.SIGTERM
    # Seconds within which it must be ready, and within which it must end before it is killed with SIGKILL.
    start_limit_s = 60.0
    stop_limit_s = 20.0

    def __init__(self, *, port: int | None = None) -> None:
        self.port = port or ports.free_port()
        self.folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        # Locked while this process owns the folder.
        self._owned: IO[str] | None = None

    # Each kind of server defines these.

    def _command(self) -> tuple[Sequence[str | Path], Mapping[str, str]]:
        """The command that runs it in the foreground, and its environment."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """Prepare the empty folder `data` before the first start."""

    def _ready(self, log: str) -> bool:
        """Whether the server is ready; `log` is what it wrote since this start."""
        raise NotImplementedError

    @property
    def data(self) -> Path:
        """The folder in which it keeps its data."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """The file of its log, over all starts."""
        return self.folder / "server.log"

    @property
    def address(self) -> str:
        """What clients connect to, as ``host:port``."""
        return f"{ports.HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether its process exists; a paused server is running, too."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id; raises ServiceError if it is not running."""
        if self._process is None or self._process.poll() is not None:
            raise self._error("it is not running", "call start() or restart() first")
        return self._process.pid

    def last_lines(self) -> str:
        """The last lines of its log."""
        return "\n".join(self._written(0).splitlines()[-LAST_LINES:])

    def start(self) -> Self:
        """Start it on its port with its data, and wait until it is ready.

        Raises
        ------
        ServiceError
            The port is in use, the server ended, or it was not ready in time. The error quotes its last lines.
        """
        if self.running:
            return self
        if not ports.is_free(self.port):
            raise self._error("another process listens on this port", "end that process, or choose another port")
        self._make_ready_to_start()
        command, environment = self._command()
        before = self.log.stat().st_size if self.log.exists() else 0
        self._process = spawn(command, cwd=self.data, log=self.log, env=environment)
        self._paused = False
        try:
            self._wait_until_ready(before)
        except BaseException:
            # Nothing must be left running, even after an interrupt.
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """End it with its `stop_signal`, and after `stop_limit_s` with SIGKILL. Port, log and data stay."""
        if self._process is None:
            return
        self.resume()
        self._process.send_signal(self.stop_signal)
        try:
            self._process.wait(self.stop_limit_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would. Port, log and data stay."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()

    def restart(self, *, keep_data: bool = True) -> Self:
        """Stop it if it is running, and start it on the same port, with its data or empty."""
        self.stop()
        if not keep_data and self.data.is_dir():
            shutil.rmtree(self.data)
        return self.start()

    def pause(self) -> None:
        """Pause it with SIGSTOP: connections stay open, but nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """Let it go on after `pause`."""
        if self.running and self._paused:
            os.kill(self.pid, signal.SIGCONT)
        self._paused = False

    def close(self) -> None:
        """Stop it and remove its folder."""
        self.stop()
        if self.folder.name:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = Path()
        if self._owned:
            self._owned.close()

    def _make_ready_to_start(self) -> None:
        if not self.folder.name:
            self._make_folder()
        if self.data.is_dir():
            return
        self.data.mkdir()
        try:
            self._prepare()
        except BaseException:
            # The next start would take a half-prepared folder for good data.
            shutil.rmtree(self.data)
            raise

    def _make_folder(self) -> None:
        _sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX + self.name + "-"))
        self._owned = (self.folder / f"{OWNER}.new").open("w")
        fcntl.flock(self._owned, fcntl.LOCK_EX)
        (self.folder / f"{OWNER}.new").rename(self.folder / OWNER)

    def _wait_until_ready(self, before: int) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self.start_limit_s
        while not self._ready(self._written(before)):
            if self._process.poll() is not None:
                raise self._error(f"it ended with status {self._process.returncode} before it was ready", "see its log")
            if time.monotonic() > deadline:
                raise self._error(f"it was not ready within {self.start_limit_s:.0f} s", "see its log")
            time.sleep(LOOK_EVERY_S)

    def _written(self, start: int) -> str:
        if not self.folder.name or not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")

    def _error(self, what: str, do: str) -> ServiceError:
        return ServiceError(what, where=f"{self.name} at {self.address}", do=do, log=self.last_lines())


def _sweep() -> None:
    """Remove folders that killed processes left behind. The lock of such a folder is free."""
    for owner in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{OWNER}"):
        try:
            with owner.open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(owner.parent, ignore_errors=True)
        except OSError:
            # Its owner is alive, or is another user, or another process removes it at this moment.
            continue
