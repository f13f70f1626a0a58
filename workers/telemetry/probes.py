"""The HTTP server of processes that have no other one: /metrics, /metrics/models, /healthz and /readyz."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from omdml.errors import ConfigurationError
from omdml.workers.telemetry.condition import Condition
from omdml.workers.telemetry.single_models import PATH, SingleModels

# Seconds that a client may send nothing, or read nothing of its answer; and seconds that a request's head may take.
REQUEST_S = 10.0
# The library takes a hundred fields of 64 KiB each.
MAX_HEAD_BYTES = 64 << 10
# The most connections at the same time. Others are closed at once.
MAX_CONNECTIONS = 200


class RequestHead(io.RawIOBase):
    """The head of a request. Reading it raises TimeoutError if that takes too long, or if it is too long.

    A socket's own timeout begins again with every byte. It is not changed for each read: after every change this thread
    waits until the one that learns gives the interpreter back. A worker with little processor answered too late then.
    """

    def __init__(self, connection: socket.socket, limit_s: float) -> None:
        self._connection = connection
        self._until, self._room = time.monotonic() + limit_s, MAX_HEAD_BYTES

    def readable(self) -> bool:
        """Say that this can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        if time.monotonic() >= self._until or not self._room:
            raise TimeoutError
        count = self._connection.recv_into(buffer, min(len(buffer), self._room))
        self._room -= count
        return count


class SilentHandler(WSGIRequestHandler):
    """Logs no requests, and ends a connection on which nothing comes."""

    timeout = REQUEST_S

    def setup(self) -> None:
        """Bound what is read of this connection."""
        super().setup()
        self.rfile = io.BufferedReader(RequestHead(self.connection, self.timeout))

    def log_message(self, format: str, *_: Any) -> None:  # noqa: A002 # as the library has it
        """Do not log requests of probes: they come every few seconds."""


def serve_probes(
    host: str,
    port: int,
    registry: CollectorRegistry,
    condition: Callable[[], Condition] | None,
    models: SingleModels | None = None,
) -> int:
    """Serve in a thread of its own, and answer the port; raises OSError if the address cannot be taken.

    Without a ``condition`` there are no probes, without ``models`` there is no /metrics/models.
    """
    server = make_server(
        host, port, application(registry, condition, models), server_class(host), handler_class=SilentHandler
    )
    threading.Thread(target=server.serve_forever, name="omdml-probes", daemon=True).start()
    return server.server_port


def server_class(host: str) -> type[ThreadingWSGIServer]:
    """A server of this host's family of addresses."""

    class Server(ThreadingWSGIServer):
        address_family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]

        def __init__(self, *arguments: Any, **more: Any) -> None:
            self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
            super().__init__(*arguments, **more)

        def process_request(self, request: Any, client_address: Any) -> None:
            # Each connection has a thread: what learns must have some of the process's files and memory left.
            if self._room.acquire(blocking=False):
                super().process_request(request, client_address)
            else:
                self.shutdown_request(request)

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            try:
                super().process_request_thread(request, client_address)
            finally:
                self._room.release()

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Log nothing: the client hung up, or was silent for too long."""

    return Server


def application(
    registry: CollectorRegistry, condition: Callable[[], Condition] | None, models: SingleModels | None = None
) -> Callable[..., Iterable[bytes]]:
    """A WSGI application that answers each path with its page."""
    metrics = make_wsgi_app(registry)

    def pages(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return metrics(environ, start)
        if path == PATH and models is not None:
            # The library would take the rest of the query for names of metrics.
            query, environ["QUERY_STRING"] = environ.get("QUERY_STRING", ""), ""
            try:
                return make_wsgi_app(models.page(query))(environ, start)
            except ConfigurationError as refused:
                return answer(start, "400 Bad Request", error="invalid", message=str(refused))
        if condition is None or path not in ("/healthz", "/readyz"):
            return answer(
                start,
                "404 Not Found",
                error="not_found",
                message=f"there are /metrics, {PATH} (of a worker), /healthz and /readyz",
            )
        now = condition()
        is_well = now.alive if path == "/healthz" else now.ready
        if is_well:
            return answer(start, "200 OK", status="ok" if path == "/healthz" else "ready", message=now.status)
        error = "stuck" if path == "/healthz" else "not_ready"
        return answer(start, "503 Service Unavailable", error=error, message=now.status)

    return pages


def answer(start: Callable[..., Any], line: str, **fields: str) -> list[bytes]:
    """Answer with one JSON object; ``line`` is the status, such as 200 OK."""
    body = json.dumps(fields).encode()
    start(line, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
