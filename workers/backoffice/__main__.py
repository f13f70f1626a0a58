"""The process that does the jobs: ``python -m omdml.workers.backoffice PIPE IDLE_S``, started by a node."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import structlog

from omdml.errors import OmdmlError

# Searches and events go first.
NICE = 5

log = structlog.get_logger(__name__)


def main(number: int, idle_s: float) -> None:
    """Do one job after the other, until the node closes the pipe or asks for nothing for this many seconds."""
    os.nice(NICE)
    # Ctrl-C at a terminal is for the node, which then closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Connection(number) as pipe:
        from omdml.workers.backoffice.jobs import JOBS
        from omdml.workers.backoffice.office import JobOutcome
        from omdml.workers.configuration.config import Configuration
        from omdml.workers.configuration.process import configure_log

        configuration = msgspec.msgpack.decode(pipe.recv_bytes(), type=Configuration)
        configure_log(configuration.logging.format, configuration.logging.level)
        while pipe.poll(idle_s):
            try:
                job, arguments = msgspec.msgpack.decode(pipe.recv_bytes(), type=tuple[str, dict[str, Any]])
            except EOFError:
                return
            try:
                outcome = JobOutcome(msgspec.Raw(msgspec.json.encode(JOBS[job](configuration, **arguments))))
            except OmdmlError as error:
                outcome = JobOutcome(reason=error.reason, message=str(error))
            except Exception:
                log.exception("job_failed", job=job)
                outcome = JobOutcome(reason="internal", message="this failed: the node's log says why")
            pipe.send_bytes(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
