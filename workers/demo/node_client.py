"""A node as its users see it: over HTTP, on one connection that stays open."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from omdml.errors import ConfigurationError, OmdmlError
from omdml.feedback import AnyFeedback, encode
from omdml.workers.node.live_model import Answer

JSON_LINES = {"Content-Type": "application/x-ndjson"}


class NodeError(OmdmlError):
    """A node that is out of reach, or refuses; ``reason`` is the node's own code where it gave one."""

    def __init__(self, message: str, reason: str = "node") -> None:
        super().__init__(message)
        self.reason = reason


class Freshness(msgspec.Struct, frozen=True):
    """Seconds from a click to answers that know it, of a node's last swaps: at most a thousand."""

    p50_s: float
    p99_s: float
    count: int


class Served(msgspec.Struct, frozen=True):
    """What a node says about a model; ``version`` and what follows only where it is ready.

    ``live_since`` is the node's clock, in seconds since the epoch.
    """

    model: str
    ready: bool
    version: int = 0
    learner: str = ""
    tasks: list[str] = []
    items: int = 0
    live_since: float = 0.0
    freshness: Freshness | None = None


class Models(msgspec.Struct, frozen=True):
    """The answer of ``GET /models``."""

    models: list[Served]


class NodeClient:
    """Asks one node. One thread uses it.

    Parameters
    ----------
    url
        ``http://host:port``, or ``https://host``.
    timeout_s
        For each answer.
    token
        The node's, if it has one.

    Raises
    ------
    ConfigurationError
        The URL is none.
    NodeError
        From every method: out of reach, or refused.
    """

    def __init__(self, url: str, timeout_s: float = 10.0, token: str = "") -> None:
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        try:
            parts = urlsplit(url)
            self._connection = kinds[parts.scheme](parts.hostname or "", parts.port, timeout=timeout_s)
        except (KeyError, ValueError, http.client.InvalidURL) as error:
            raise ConfigurationError(f"node {url!r}: expected a URL such as http://127.0.0.1:8080") from error
        self._url, self._path = url, parts.path.rstrip("/")
        self._tasks: dict[str, Sequence[str]] = {}
        self._headers = JSON_LINES | ({"Authorization": f"Bearer {token}"} if token else {})

    def search(self, model: str, query: str, k: int, task: str | None = None) -> Answer:
        """The ``k`` items closest to the item ``query``, in the sense of a task where the model tells tasks apart."""
        sense = {"task": task} if task is not None and task in self._tasks_of(model) else {}
        return msgspec.json.decode(self._get("/search", model=model, id=query, k=str(k), **sense), type=Answer)

    def _tasks_of(self, model: str) -> Sequence[str]:
        """Asked for once: a model's tasks stay what they are."""
        if model not in self._tasks:
            self._tasks[model] = self.models()[model].tasks
        return self._tasks[model]

    def send(self, events: Iterable[AnyFeedback]) -> None:
        """Post feedback; returns when the node has it on disk, or in Kafka."""
        body = b"\n".join(encode(event) for event in events)
        self._checked(*self._exchange("POST", "/feedback", body, self._headers))

    def models(self, since: float = 0.0) -> dict[str, Served]:
        """The models that the node knows, by name; their freshness is that of what went live after ``since``."""
        found = msgspec.json.decode(self._get("/models", since=repr(since)), type=Models).models
        return {served.model: served for served in found}

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _get(self, path: str, **parameters: str) -> bytes:
        target = f"{path}?{urlencode(parameters)}" if parameters else path
        try:
            return self._checked(*self._exchange("GET", target))
        except NodeError as error:
            if not isinstance(error.__cause__, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
                raise
            return self._checked(*self._exchange("GET", target))  # servers close connections that were idle

    def _exchange(self, method: str, path: str, *rest: Any) -> tuple[int, bytes]:
        try:
            self._connection.request(method, self._path + path, *rest)
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            what = str(error) or type(error).__name__
            raise NodeError(
                f"node {self._url} did not answer {method} {path.partition('?')[0]} ({what}): is it up?"
            ) from error
        except BaseException:
            # An answer that is left half read would be taken for the next one's.
            self._connection.close()
            raise

    def _checked(self, status: int, body: bytes) -> bytes:
        if status in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
            return body
        try:
            told = json.loads(body)
            raise NodeError(f"node {self._url} refuses: {told['message']}", str(told["error"]))
        except (ValueError, KeyError, TypeError) as error:
            raise NodeError(f"node {self._url} answered {status}: {body[:200]!r}, expected omdml's JSON") from error
