"""Connections to one node that stay open between requests, shared by any number of threads.

They are the standard library's: a shop that only searches installs and imports nothing for it.
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

# Connections kept for later. More than that may be open at once; they are closed after their request.
KEPT = 32
READ_BYTES = 1 << 16


class Response(NamedTuple):
    """An answer, read whole. The names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NotSent(OSError):
    """No connection came about, so the node knows nothing of the request."""


class Broken(OSError):
    """The connection broke, or an answer took too long: the node may have done what was asked."""


class Connections:
    """Connections to one node.

    Parameters
    ----------
    url
        ``http://host:port`` or ``https://host``, and perhaps a path that a proxy puts before the node's own.
    tls
        For https: what to trust; by default what the system trusts.

    Raises
    ------
    ParameterError
        The URL is none.
    """

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path.rstrip("/")
        except ValueError as error:
            raise _no_url(url) from error
        if parts.scheme not in ("http", "https") or not self._host or parts.query or parts.fragment or parts.username:
            raise _no_url(url)
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        # Appending to a list and popping from it are atomic, so threads need no lock for it.
        self._idle: list[http.client.HTTPConnection] = []
        self._process = os.getpid()

    def exchange(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], wait_s: float, fresh: bool
    ) -> Response:
        """Send a request and read its answer, within about ``wait_s`` seconds.

        A kept connection may have been closed by the node just now. ``fresh`` takes a new one, on which nothing is lost
        for that reason. Raises NotSent and Broken.
        """
        until = time.monotonic() + wait_s
        connection = None if fresh else self._kept()
        if connection is None:
            connection = self._opened(wait_s)
        done = False
        try:
            _limit(connection, until)
            connection.request(method, self._path + target, body, dict(headers))
            _limit(connection, until)
            answer = connection.getresponse()
            parts = []
            while part := answer.read1(READ_BYTES):
                parts.append(part)
                if connection.sock is not None:
                    _limit(connection, until)
            # Until then Python 3.11 takes the answer for one that is still being read.
            answer.read()
            done = not answer.will_close
            return Response(answer.status, {name.lower(): text for name, text in answer.getheaders()}, b"".join(parts))
        except (OSError, http.client.HTTPException) as error:
            raise Broken(_said(error)) from error
        finally:
            if done and len(self._idle) < KEPT:
                self._idle.append(connection)
            else:
                # An answer that is left half read would be taken for the next one's.
                connection.close()

    def close(self) -> None:
        """Close what nobody uses just now."""
        while self._idle:
            self._idle.pop().close()

    def _kept(self) -> http.client.HTTPConnection | None:
        """A connection that the node has not closed."""
        if self._process != os.getpid():
            # This process was forked: its parent goes on with those connections.
            self._process, self._idle = os.getpid(), []
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            # Nothing is to be read from a live one between two requests; from a closed one its end is.
            waiting = select.poll()
            if connection.sock is not None:
                waiting.register(connection.sock, select.POLLIN)
                if not waiting.poll(0):
                    return connection
            connection.close()

    def _opened(self, wait_s: float) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self._tls:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=wait_s, context=self._tls)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=wait_s)
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:
            connection.close()
            raise NotSent(_said(error)) from error
        return connection


def _limit(connection: http.client.HTTPConnection, until: float) -> None:
    """Have the next step of a connection end in time."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the answer took too long")
    connection.sock.settimeout(left)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _no_url(url: str) -> ParameterError:
    return ParameterError(f"node {url!r}: expected a URL such as http://localhost:8080 or https://host/path")
