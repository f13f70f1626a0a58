"""Limits of the connections of a node's HTTP server: how many there are, how long a request or an answer may take, how
many bytes a request may have besides its body, and how many requests may wait.

uvicorn waits for ever for the rest of a request, and for a client that does not read its answer. It keeps heads and
trailers of any length, and any number of requests that a client sends ahead. Its other parser, h11, has a limit for
heads and trailers. But it takes 0.44 s for 256 KiB of a body in pieces of one byte, and nobody else is answered in that
time. The parser that is used here, httptools, takes 0.012 s.

Some clients offer HTTP/2 in their first request, among them Java's with its defaults. A server may ignore that offer.
But httptools then lets the request end after its head. uvicorn would answer it without its body, and take the body for
the next request. So such a request is parsed a second time, without the offer.
"""

from __future__ import annotations

import math
import time
from asyncio import TimerHandle, Transport
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import structlog
from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from omdml.workers.node.http.middleware.metrics import HttpMetrics
from omdml.workers.node.http.problems import PROBLEM, problem

MAX_CONNECTIONS = 1000
# Seconds for a request to come whole, and for a client to read on in its answer.
REQUEST_S = 30.0
# Bytes of a request's first line, its header fields and its trailers together.
MAX_HEAD_BYTES = 64 << 10
# The number of fields has a limit of its own, because a field of three bytes costs a hundred times its length.
MAX_FIELDS = 100
# Bytes of all answers that wait for their clients to read them. If there are more, the one that has waited longest is
# given up.
MAX_UNREAD_BYTES = 256 << 20
# Seconds between lines of the log about refused connections.
EVERY_S = 60.0
# Requests of one connection that wait for answers to those before.
MAX_AHEAD = 10

log = structlog.get_logger(__name__)


class Counted:
    """Logs an event that others can cause without end: at most one line a minute, which says how often it happened."""

    def __init__(self, event: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._event, self._clock = event, clock
        self._count, self._logged_at = 0, -math.inf

    def tell(self, **fields: object) -> None:
        """Count the event once more, and log it if the last line is a minute old."""
        self._count += 1
        now = self._clock()
        if now - self._logged_at >= EVERY_S:
            log.warning(self._event, count=self._count, **fields)
            self._count, self._logged_at = 0, now


_refusals, _unread = Counted("connection_refused"), Counted("connection_ended")


class TooLong(Exception):
    """The head of a request, or its trailers, are too long."""


class _Parser(HttpRequestParser):
    """Parses requests that offer another protocol as if they did not."""

    def __init__(self, connection: BoundedConnection) -> None:
        super().__init__(connection)
        self._connection = connection
        # As uvicorn's own: a request that a client sends behind its last one does no harm.
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: bytes) -> None:  # type: ignore[override] # asyncio brings bytes
        """Parse some bytes; behind an offer, its head comes again without it."""
        while True:
            try:
                super().feed_data(data)
            except HttpParserUpgrade as offer:
                data = self._connection.head_without_offer + data[offer.args[0] :]
            else:
                return


class BoundedConnection(HttpToolsProtocol):
    """A connection that is ended if it takes too long or says too much, or if there are too many."""

    # Ends a connection whose request does not come whole.
    _request_deadline: TimerHandle | None = None
    # Ends a connection whose answer is not read.
    _answer_deadline: TimerHandle | None = None
    # Bytes that came since the last piece of a body, or the end of the last request.
    _without_body = 0
    # What was parsed of this request's head and trailers.
    _head_bytes = 0
    _fields = 0
    # The head of the request that offered another protocol, as it is parsed again.
    head_without_offer = b""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.parser = _Parser(self)

    @property
    def _metrics(self) -> HttpMetrics:
        metrics: HttpMetrics = self.config.app.state.metrics  # type: ignore[union-attr] # create_app's
        return metrics

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Begin, unless there are too many."""
        super().connection_made(transport)
        self._metrics.connections.set(len(self.connections))
        if len(self.connections) > MAX_CONNECTIONS:
            self._metrics.refused.inc()
            _refusals.tell(open=MAX_CONNECTIONS)
            transport.abort()
        else:
            self._request_deadline = self._deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadlines of a connection that has ended."""
        self._request_came()
        self._answer_read()
        super().connection_lost(exc)
        self._metrics.connections.set(len(self.connections))

    def data_received(self, data: bytes) -> None:
        """Take in some bytes. End the connection if a head, a field or trailers have no end within the limit."""
        self._request_deadline = self._request_deadline or self._deadline()
        self._without_body += len(data)
        super().data_received(data)
        if self._without_body > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse()

    def on_message_begin(self) -> None:
        """Start counting the bytes and fields of the next request."""
        self._head_bytes = self._fields = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take in a part of the first line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take in a field of the head or of the trailers."""
        self._fields += 1
        # The colon, a space and the line's end belong to a field.
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        """Refuse a request by an exception, which ends the parsing: uvicorn answers it by ``send_400_response``."""
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES or self._fields > MAX_FIELDS:
            raise TooLong

    @property
    def _offers(self) -> bool:
        """Whether this request offers another protocol. CONNECT, which asks for a tunnel, does not count."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def on_headers_complete(self) -> None:
        """Answer the request whose head is there, or have it wait for those before."""
        if self._offers:
            # Its body is parsed behind the head that comes again.
            fields = [b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade"]
            version = self.parser.get_http_version().encode()
            first_line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, version)
            self.head_without_offer = b"".join([first_line, *fields, b"\r\n"])
        elif len(self.pipeline) < MAX_AHEAD:
            super().on_headers_complete()
        elif not self.transport.is_closing():
            log.warning("connection_ended", reason="too many requests sent ahead", ahead=MAX_AHEAD)
            self.transport.abort()

    def on_body(self, body: bytes) -> None:
        """Take in a piece of the body."""
        self._without_body = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the clock: the request is there."""
        if self._offers:
            return
        self._without_body = 0
        self._request_came()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not a request, or a request that is too long, and end the connection.

        ``msg`` is uvicorn's sentence about them.
        """
        if self._head_bytes > MAX_HEAD_BYTES or self._fields > MAX_FIELDS:
            self._refuse()
        else:
            self._end(400, "not_http", f"{msg} This node speaks HTTP/1.1, without TLS.")

    def _refuse(self) -> None:
        limit = f"{MAX_HEAD_BYTES} bytes and {MAX_FIELDS} fields"
        message = f"The head of this request, or its trailers, are too long: a node takes at most {limit}."
        self._end(431, "oversize", message)

    def _end(self, status: int, error: str, message: str) -> None:
        """Answer, unless an answer to an earlier request would be mixed up with it, and end the connection."""
        client = self.client[0] if self.client else ""
        self._metrics.not_a_request(status)
        log.warning("connection_ended", reason=message, status=status, client=client)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            # The answer is for this very request if its body is still coming, and nothing else waits to be answered.
            if not cycle.more_body or cycle.response_started or self.pipeline:
                self.transport.abort()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        body = problem(HTTPStatus(status), error, message)
        head = f"content-type: {PROBLEM}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head.encode() + body)
        self.transport.close()

    def pause_writing(self) -> None:
        """Start the clock of a client that does not read its answer for now."""
        self._answer_deadline = self._deadline()
        super().pause_writing()
        self._bound_unread()

    def _bound_unread(self) -> None:
        """End the connections that have waited longest for their clients to read, if all of them hold too much."""
        waiting = [
            (connection._answer_deadline.when(), size, connection.transport)
            for connection in self.connections
            if isinstance(connection, BoundedConnection) and connection._answer_deadline
            and (size := connection.transport.get_write_buffer_size())
        ]  # fmt: skip
        held = sum(size for _, size, _ in waiting)
        for _, size, transport in sorted(waiting, key=lambda connection: connection[0]):
            if held <= MAX_UNREAD_BYTES:
                return
            held -= size
            _unread.tell(reason="its client does not read the answer, and too much waits to be read", bytes=held)
            transport.abort()

    def resume_writing(self) -> None:
        """Stop that clock: the client reads on."""
        self._answer_read()
        super().resume_writing()

    def _deadline(self) -> TimerHandle:
        return self.loop.call_later(REQUEST_S, self.transport.abort)

    def _request_came(self) -> None:
        if self._request_deadline is not None:
            self._request_deadline.cancel()
            self._request_deadline = None

    def _answer_read(self) -> None:
        if self._answer_deadline is not None:
            self._answer_deadline.cancel()
            self._answer_deadline = None
