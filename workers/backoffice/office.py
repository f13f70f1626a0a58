"""Asks a process beside the node to do jobs for operators, so that no search waits for them."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

import msgspec
import structlog

from omdml.errors import OmdmlError
from omdml.workers.configuration.config import Configuration

# A job that takes longer is ended: reading millions of letters is work for the command line.
TIMEOUT_S = 60.0
# How long a job waits for the one before it.
PATIENCE_S = 10.0
# The process ends by itself after this much silence; a console that is open asks more often.
IDLE_S = 60.0
# How long it may take to end after its pipe was closed.
END_S = 5.0

log = structlog.get_logger(__name__)


class JobError(OmdmlError):
    """A job was refused; ``reason`` is the code that the refusal had in the process that did the job."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class JobOutcome(msgspec.Struct, frozen=True):
    """What the process says: the answer as JSON, or a refusal with its code and its sentence."""

    answer: msgspec.Raw = msgspec.Raw(b"null")
    reason: str = ""
    message: str = ""


class BackOffice:
    """Answers what operators ask for. Any number of threads may ask; they are served one after the other.

    A process of its own does the jobs, with low priority: reading a log and looking at every model takes seconds of
    Python, during which searches would wait for the interpreter. It starts with the first job, and ends after a minute
    without one, or when this process ends; its memory is given back then.

    Parameters
    ----------
    configuration
        That of the node. It may hold secrets, so it is handed over through a pipe.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._working = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def __call__(self, job: str, **arguments: Any) -> bytes:
        """Do a job of :data:`omdml.workers.backoffice.jobs.JOBS`; returns its answer as JSON.

        Raises JobError: ``busy`` if the job before takes too long, ``timeout``, or what the job was refused for.
        """
        if not self._working.acquire(timeout=PATIENCE_S):
            raise JobError("this node is busy with another operator's request: send this again a little later", "busy")
        try:
            outcome = self._outcome(msgspec.msgpack.encode((job, arguments)))
        finally:
            self._working.release()
        if outcome.reason:
            raise JobError(outcome.message, outcome.reason)
        return bytes(outcome.answer)

    def close(self) -> None:
        with self._working:
            self._end()

    def _outcome(self, task: bytes) -> JobOutcome:
        for _ in range(2):
            pipe = self._open()
            # The process may have ended since the last job, because nobody asked: then it did not take this one.
            with suppress(EOFError, BrokenPipeError, ConnectionResetError):
                pipe.send_bytes(task)
                if not pipe.poll(TIMEOUT_S):
                    self._kill()
                    advice = "use the command line (omdml doctor, omdml letters)"
                    raise JobError(f"this took longer than {TIMEOUT_S:g} s: {advice}", "timeout")
                return msgspec.json.decode(pipe.recv_bytes(), type=JobOutcome)
            if exit_code := self._end():
                hint = "try again; if it fails again, report the traceback above"
                log.error("job_failed", exit_code=exit_code, action="the request is refused", hint=hint)
                break
        raise JobError("the process for this ended before it answered: see this node's log", "internal")

    def _open(self) -> Connection:
        """The pipe to the process, which is started if there is none."""
        if self._pipe is None:
            self._pipe, process_end = Pipe()
            descriptor = process_end.fileno()
            command = [sys.executable, "-m", "omdml.workers.backoffice", str(descriptor), str(IDLE_S)]
            with process_end:
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[descriptor])
            self._pipe.send_bytes(msgspec.msgpack.encode(self._configuration))
        return self._pipe

    def _kill(self) -> None:
        if self._process:
            self._process.kill()
        self._end()

    def _end(self) -> int:
        """End the process, if it has not ended by itself; returns its exit code, 0 if it ended without an error."""
        pipe, process, self._pipe, self._process = self._pipe, self._process, None, None
        if pipe:
            pipe.close()
        if process is None:
            return 0
        with suppress(subprocess.TimeoutExpired):
            return process.wait(END_S)
        process.kill()
        return process.wait()
