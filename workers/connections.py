"""Connections of a node's HTTP server, bounded: how many, how long a request or an answer may take, how long a head is,
how many requests wait.

uvicorn waits for ever for the rest of a request, and for a client that does not read its answer; it keeps any number of
requests that a client sends ahead.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_CONNECTIONS = 1000
REQUEST_S = 30.0  # for a request to come whole, and for a client to read on in its answer
MAX_HEAD_BYTES = 64 << 10
MAX_AHEAD = 100  # requests of one connection that wait for answers to those before

_log = structlog.get_logger(__name__)


class BoundedConnection(HttpToolsProtocol):
    """A connection that is ended when it takes too long or says too much, or where there are too many."""

    _request: TimerHandle | None = None  # ends a connection whose request does not come whole
    _answer: TimerHandle | None = None  # ends one whose answer is not read
    _head_bytes = 0
    _in_head = True

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Begin, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            _log.warning("connection_refused", open=MAX_CONNECTIONS)
            transport.abort()
        else:
            self._request = self._deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self._request_came()
        self._answer_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in some bytes."""
        self._request = self._request or self._deadline()
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self.send_400_response("The head of this request is too long.")

    def on_headers_complete(self) -> None:
        """The head of a request is there."""
        self._in_head, self._head_bytes = False, 0
        if len(self.pipeline) < MAX_AHEAD:
            super().on_headers_complete()
        elif not self.transport.is_closing():
            _log.warning("connection_ended", why="too many requests sent ahead", ahead=MAX_AHEAD)
            self.transport.abort()

    def on_message_complete(self) -> None:
        """A request is there."""
        self._in_head = True
        self._request_came()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client does not read its answer for now."""
        self._answer = self._deadline()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It reads on."""
        self._answer_read()
        super().resume_writing()

    def _deadline(self) -> TimerHandle:
        return self.loop.call_later(REQUEST_S, self.transport.abort)

    def _request_came(self) -> None:
        if self._request is not None:
            self._request.cancel()
            self._request = None

    def _answer_read(self) -> None:
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None
