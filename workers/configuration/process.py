"""The life of a process: its log, its signals, its numeric platform, what it serves."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO, cast

from omdml.errors import ConfigurationError
from omdml.streams.addresses import shown

# The configuration is checked with a part of this module: what is slow to import comes with the functions that need it.
if TYPE_CHECKING:
    import structlog
    from prometheus_client import CollectorRegistry

    from omdml.workers.telemetry.condition import Condition
    from omdml.workers.telemetry.single_models import SingleModels

# Hosts in a bind that stand for every address of this machine.
EVERY_ADDRESS = ("0.0.0.0", "[::]", "::", "[::0]")
# The thresholds of gc.set_threshold: new objects, then collections of the younger generation, before one is collected.
COLLECT_AFTER = (5_000, 10, 50)
# Seconds between two collections of everything.
COLLECT_EVERY_S = 60.0


class LogStream:
    """Standard error, for the log. A line that it does not take is left out.

    Whether a process goes on must not depend on the disk or the reader of its log. Lines are counted before
    (telemetry/log_events.py), so /metrics has them.
    """

    def write(self, text: str) -> None:
        """Write the text; a reader that went away is ignored."""
        with suppress(OSError, ValueError):
            if sys.stderr is not None:
                sys.stderr.write(text)

    def flush(self) -> None:
        """Flush the stream; a reader that went away is ignored."""
        with suppress(OSError, ValueError):
            if sys.stderr is not None:
                sys.stderr.flush()


def configure_log(form: str = "logfmt", level: str = "info") -> None:
    """Lines of key=value, or of JSON, on standard error, from this level on."""
    import structlog

    from omdml.workers.telemetry import log_events

    fields_of_line = structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], bool_as_flag=False)

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            log_events.count,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *([structlog.processors.JSONRenderer()] if form == "json" else [printable, fields_of_line]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, LogStream())),
    )
    # The client tells of every reconnection; our source says it once.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


def printable(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape what terminals obey, or hide, in what others named; the renderer itself escapes the ends of lines."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = visible(value, but="\n")
    return event


def visible(text: str, but: str = "") -> str:
    """The text with escapes for what terminals obey, or hide, except the characters in ``but``."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in but else ascii(sign)[1:-1] for sign in text)


def on_signals(stop: Callable[[], None]) -> None:
    """Call ``stop`` at SIGTERM and SIGINT. Later SIGTERMs change nothing; a second SIGINT ends the process at once."""

    def handle(number: int, frame: object) -> None:
        # Supervisors may ask twice: timeout(1) asks its child, and then the child's group. Python resets handlers
        # before a process has ended, but a signal that is ignored stays ignored: none of them changes the exit code.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if number == signal.SIGINT:
            # Whoever presses Ctrl-C again does not want to wait.
            signal.signal(number, signal.SIG_DFL)
        stop()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


def one_thread() -> None:
    """Use one BLAS thread in this process from now on: other threads would give other bytes, and cost time."""
    from omdml.blas import stay_on_one_blas_thread

    stay_on_one_blas_thread()


def lend_threads() -> None:
    """As :func:`one_thread`, but run independent parts of a model's refresh on two threads: the bytes are the same.

    A refresh keeps all events waiting. Both experts of DCA take equally long, and no learner has more.
    """
    from concurrent.futures import ThreadPoolExecutor

    from omdml.blas import lend_threads

    lend_threads(ThreadPoolExecutor(2, thread_name_prefix="omdml-refresh").map)


def forget_start() -> None:
    """Have the garbage collector pass over what was made so far. It would stop all threads for 80 ms each time.

    What is made from now on is looked at less often, too. A worker that begins thousands of models makes objects that
    stay, and by Python's defaults it spent a fifth of its time looking at them again and again. But garbage must not
    stay either: each poll of a Kafka that is away leaves some, and each connection that a node closes. So all of it is
    collected once a minute, and its memory given back.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    threading.Thread(target=_collect_again_and_again, name="garbage", daemon=True).start()


def _collect_again_and_again() -> None:
    while True:
        time.sleep(COLLECT_EVERY_S)
        gc.collect()
        give_memory_back()


def give_memory_back() -> None:
    """Give freed memory back to the system. Between freed pieces smaller things stay, so glibc does not by itself.

    Other C libraries have no such function, or need none.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def platform() -> str:
    """What the bytes of learning depend on beside the events: compiler, its processor, BLAS."""
    import llvmlite.binding
    import numba
    import numpy as np
    from threadpoolctl import threadpool_info

    blas = sorted({f"{pool['internal_api']}-{pool['version']}-{pool.get('architecture')}" for pool in threadpool_info()
                   if pool["user_api"] == "blas"})  # fmt: skip
    processor = os.environ.get("NUMBA_CPU_NAME") or llvmlite.binding.get_host_cpu_name()
    return " ".join([f"numba-{numba.__version__}", str(processor), f"numpy-{np.__version__}", *blas])


def serve_metrics(
    bind: str,
    registry: CollectorRegistry,
    where: str = "worker.bind",
    condition: Callable[[], Condition] | None = None,
    models: SingleModels | None = None,
) -> None:
    """Prometheus metrics at ``host:port`` (empty: nowhere), probes, if there is a ``condition``, and single ``models``.

    Raises ConfigurationError if the port is in use.
    """
    if not bind:
        return
    from omdml.workers.telemetry.probes import serve_probes

    host, port = address(bind, where)
    try:
        serve_probes(host, port, registry, condition, models)
    except (OSError, UnicodeError) as error:
        message = f"{where} {bind}: {getattr(error, 'strerror', error)}; choose another port, or '' to serve none"
        raise ConfigurationError(message) from error


def address(bind: str, where: str) -> tuple[str, int]:
    """Host and port of ``host:port``; raises ConfigurationError."""
    host, _, port = bind.rpartition(":")
    if not host or "@" in host or "/" in host or not re.fullmatch("[0-9]{1,5}", port) or int(port) >= 65536:
        raise ConfigurationError(f"{where} is {shown(bind)}, expected host:port, such as 127.0.0.1:8080")
    return host, int(port)


def near_address(bind: str) -> tuple[str, int]:
    """Host and port at which this machine reaches a node that binds to ``bind``; raises ConfigurationError."""
    host, port = address(bind, "node.bind")
    return ("127.0.0.1" if host in EVERY_ADDRESS else host), port
