"""Connections to one node that stay open between requests, shared by any number of threads.

They use the standard library, so that a shop that only searches needs no further package.
"""

from __future__ import annotations

import http.client
import os
import select
import ssl
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from omdml.errors import ParameterError

# Idle connections to keep. More may be open at the same time; they are closed after their request.
MAX_IDLE = 32
# The most bytes of an answer that are read at a time. The time limit is checked after each read.
READ_BYTES = 1 << 16


class Response(NamedTuple):
    """A complete answer. Names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NotSent(OSError):
    """No connection could be opened, so the node has not seen the request."""


class Broken(OSError):
    """The connection broke, or the answer took too long. The node may have carried out the request."""


class Connections:
    """Connections to one node, for any number of threads.

    Parameters
    ----------
    url
        ``http://host:port`` or ``https://host``, and perhaps a path that a proxy puts before the node's own.
    tls
        For https: what to trust; by default what the system trusts.

    Raises
    ------
    ParameterError
        ``url`` is not a URL of this form.
    """

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path.rstrip("/")
        except ValueError as error:
            raise _not_a_url(url) from error
        if parts.scheme not in ("http", "https") or not self._host or parts.query or parts.fragment or parts.username:
            raise _not_a_url(url)
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        # Appending to a list and popping from it are atomic, so threads need no lock for it.
        self._idle: list[http.client.HTTPConnection] = []
        self._process = os.getpid()

    def exchange(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], wait_s: float, fresh: bool
    ) -> Response:
        """Send a request and read its answer, within about ``wait_s`` seconds.

        The node may have closed an idle connection at any time. With ``fresh`` a new connection is opened, which avoids
        that. Raises NotSent and Broken.
        """
        deadline = time.monotonic() + wait_s
        connection = None if fresh else self._idle_connection()
        if connection is None:
            connection = self._open(wait_s)
        reusable = False
        try:
            _limit(connection, deadline)
            connection.request(method, self._path + target, body, dict(headers))
            _limit(connection, deadline)
            answer = connection.getresponse()
            parts = []
            while part := answer.read1(READ_BYTES):
                parts.append(part)
                if connection.sock is not None:
                    _limit(connection, deadline)
            # Without this read at the end, Python 3.11 believes that the answer is still being read.
            answer.read()
            reusable = not answer.will_close
            return Response(answer.status, {name.lower(): text for name, text in answer.getheaders()}, b"".join(parts))
        except (OSError, http.client.HTTPException) as error:
            raise Broken(_text_of(error)) from error
        finally:
            if reusable and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
            else:
                # If an answer was read only in part, what is left of it would be taken for the next answer.
                connection.close()

    def close(self) -> None:
        """Close all idle connections; those in use stay open."""
        while self._idle:
            self._idle.pop().close()

    def _idle_connection(self) -> http.client.HTTPConnection | None:
        """An idle connection that the node has not closed, or None."""
        if self._process != os.getpid():
            # This process was forked, and its parent still uses these connections.
            self._process, self._idle = os.getpid(), []
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            # Between requests there is nothing to read from an open connection. If it was closed, there is its end.
            poll = select.poll()
            if connection.sock is not None:
                poll.register(connection.sock, select.POLLIN)
                if not poll.poll(0):
                    return connection
            connection.close()

    def _open(self, wait_s: float) -> http.client.HTTPConnection:
        """A new connection; raises NotSent if none can be opened within ``wait_s`` seconds."""
        connection: http.client.HTTPConnection
        if self._tls:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=wait_s, context=self._tls)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=wait_s)
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:
            connection.close()
            raise NotSent(_text_of(error)) from error
        return connection


def _limit(connection: http.client.HTTPConnection, deadline: float) -> None:
    """Limit the next operation on a connection to the remaining time; raises TimeoutError if there is none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the answer took too long")
    connection.sock.settimeout(left)


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__


def _not_a_url(url: str) -> ParameterError:
    return ParameterError(f"node {url!r}: expected a URL such as http://localhost:8080 or https://host/path")
