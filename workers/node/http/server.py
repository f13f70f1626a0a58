"""A node's HTTP server, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
from collections.abc import Callable, Iterator, Sequence

import structlog
import uvicorn
from starlette.applications import Starlette

from omdml.errors import ConfigurationError
from omdml.workers.configuration.access import NO_TOKENS, Access
from omdml.workers.configuration.process import on_signals
from omdml.workers.node.experiments.experiments import Experiments
from omdml.workers.node.http.app import create_app
from omdml.workers.node.http.connection_limits import MAX_CONNECTIONS, BoundedConnection
from omdml.workers.node.node import RetrievalNode
from omdml.workers.node.pictures import Pictures
from omdml.workers.telemetry.condition import Condition, Messenger

BACKLOG = 2048
# Open files of a node: asyncio takes all connections that wait before it refuses the first one that is too many, and
# store, log, catalogues and libraries have files of their own. Without one left, asyncio logs without end, and nothing
# can be read from the store.
OPEN_FILES = MAX_CONNECTIONS + BACKLOG + 500
# Seconds for requests that are being answered when the server stops.
GRACE_S = 10

log = structlog.get_logger(__name__)


class HttpServer:
    """Serves an app. It takes the port when it is made, so a port that another process has is noticed at once.

    Parameters
    ----------
    host
        Loopback by default.
    port
        0 takes a free one.

    Raises
    ------
    ConfigurationError
        The address cannot be taken.
    """

    def __init__(self, app: Starlette, host: str = "127.0.0.1", port: int = 8080) -> None:
        self._socket = bind(host, port)
        self.host, self.port = self._socket.getsockname()[:2]
        config = uvicorn.Config(
            app,
            http=BoundedConnection,
            # The same loop whatever else is installed: uvloop was measured, and is no faster here.
            loop="asyncio",
            ws="none",
            log_config=None,
            # If bytes are no request, its own warning does not say so. The connection logs a sentence about it.
            log_level="error",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=GRACE_S,
            server_header=False,
        )
        self._server = _Server(config)
        app.state.stopping = lambda: self._server.should_exit

    @property
    def url(self) -> str:
        """The address at which the server answers."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def run(self) -> None:
        """Serve until :meth:`stop`; requests that are being answered then are finished."""
        with self._socket:
            self._server.run([self._socket])

    def condition_of(self, node: RetrievalNode) -> Callable[[], Condition]:
        """A function that tells the condition of the node that this server serves."""

        def condition() -> Condition:
            missing, stopping = node.readiness.awaited(), bool(self._server.should_exit)
            status = f"no snapshot yet: {', '.join(missing)}" if missing else f"serving {self.url}"
            if stopping:
                status = "draining: requests that came before are being answered"
            if not node.alive:
                status = "a background thread makes no progress: restart this node"
            ready = node.alive and not missing and not stopping
            return Condition(self._server.started, node.alive, ready, stopping, status)

        return condition

    def stop(self) -> None:
        """End :meth:`run`, from any thread or signal."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End, and say in one line how many requests took too long to be waited for."""
        logging.getLogger("uvicorn.error").addFilter(_is_not_of_a_cancelled_request)
        await super().shutdown(sockets)
        if cancelled := len(self.server_state.tasks):
            reason, action = f"not answered {GRACE_S} s after the node was told to end", "their clients ask again"
            log.warning("requests_cancelled", requests=cancelled, reason=reason, action=action)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process: uvicorn would send itself the same one again when it is done."""
        yield


def _is_not_of_a_cancelled_request(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn is not about a request that it cancels: each such line would have a traceback."""
    error = record.exc_info and record.exc_info[1]
    return not isinstance(error, asyncio.CancelledError) and not record.getMessage().startswith("Cancel ")


def serve(
    node: RetrievalNode,
    host: str = "127.0.0.1",
    port: int = 8080,
    access: Access = NO_TOKENS,
    hosts: Sequence[str] = (),
    pictures: Callable[[str], Pictures | None] = lambda model: None,
    office: Callable[..., bytes] | None = None,
    experiments: Experiments | None = None,
) -> None:
    """Run a node and its HTTP server until SIGTERM or SIGINT; ``access`` says who may write.

    ``hosts`` are names of this node beside the one it binds to, ``pictures`` those of a model's items. ``office`` does
    what operators ask for.

    Raises ConfigurationError for an address in use.
    """
    allow_open_files(OPEN_FILES)
    # A node with a token answers to any name unless some are given.
    names = [*hosts, host] if hosts or not access else []
    server = HttpServer(create_app(node, access, names, pictures, office, experiments), host, port)
    on_signals(server.stop)
    with node, Messenger(server.condition_of(node)):
        log.info("node_started", url=server.url, models=node.models.all)
        server.run()
    if experiments:
        experiments.close()
    log.info("node_stopped", url=server.url)


def allow_open_files(count: int) -> None:
    """Let this process open this many files, or as many as its hard limit has; the soft one is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; raises ConfigurationError saying what to do."""
    advice = {
        errno.EADDRINUSE: "another process has this port: stop it, or set [node] bind to another one",
        errno.EACCES: "ports below 1024 need privileges: choose a higher one",
        errno.EADDRNOTAVAIL: "this machine has no such address: use 127.0.0.1, or 0.0.0.0 for all of its own",
    }
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # uvicorn writes the head of an answer and its body apart. Without this option, which connections inherit, the
        # kernel keeps the body back until the client has acknowledged the head: 40 ms later, on kept-alive connections.
        # asyncio sets it only for sockets made with an explicit protocol number, which this one is not.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        what = advice.get(error.errno or 0, "check [node] bind")
        raise ConfigurationError(f"node cannot listen at {host}:{port} ({error.strerror}): {what}") from error
    except UnicodeError as error:
        # The host may be no name of one, such as "..".
        raise ConfigurationError(f"node cannot listen at {host}:{port} ({error}): check [node] bind") from error
