"""Requests to a node, with retries."""

from __future__ import annotations

import os
import random
import ssl
import time
from collections.abc import Mapping
from itertools import count
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from omdml.client.connections import Broken, Connections, NotSent, Response
from omdml.client.errors import ClientError, Unreachable, refusal
from omdml.errors import ParameterError, quoted

T = TypeVar("T")
JSON, JSON_LINES = "application/json", "application/x-ndjson"
# Statuses after which the same request may succeed later: the node is waiting for something, or is overloaded.
RETRIED = (429, 502, 503, 504)
# The longest wait before the second attempt, in seconds. It doubles with each further attempt, up to the largest wait.
FIRST_WAIT_S, LARGEST_WAIT_S = 0.1, 2.0


class Requests:
    """Sends requests to one node. Any number of threads may use it.

    Parameters
    ----------
    url
        URL of the node.
    token
        Token of the node, if it needs one.
    timeout_s
        Seconds for each attempt, from connecting to the last byte of the answer.
    retry_s
        Seconds after which no further attempt begins; 0 for a single attempt.
    tls
        For https: which certificates to trust; by default those that the system trusts.
    """

    def __init__(self, url: str, token: str, timeout_s: float, retry_s: float, tls: ssl.SSLContext | None) -> None:
        if not timeout_s > 0 or not retry_s >= 0:
            got = f"timeout_s is {timeout_s} and retry_s is {retry_s}"
            raise ParameterError(f"{got}, expected timeout_s above 0 and retry_s of at least 0")
        self.url = url
        self.connections = Connections(url, tls)
        self._timeout_s, self._retry_s = timeout_s, retry_s
        # http.client would refuse such a token later, and its message would show it.
        if "\n" in token or "\r" in token:
            raise ParameterError(
                "the token has a line break, as if it was read from a file: remove it, for example by token.strip()"
            )
        self._headers = {"Accept": JSON} | ({"Authorization": f"Bearer {token}"} if token else {})

    def get(self, path: str, kind: type[T], **parameters: str | int) -> T:
        """Send a GET request, and decode its answer as ``kind``."""
        return self.send("GET", f"{path}?{urlencode(parameters)}" if parameters else path, kind)

    def post(self, path: str, kind: type[T], content: object, *, repeatable: bool = True) -> T:
        """Send a POST request with JSON, and decode its answer as ``kind``."""
        return self.send("POST", path, kind, msgspec.json.encode(content), repeatable=repeatable)

    def send(
        self,
        method: str,
        target: str,
        kind: type[T],
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        repeatable: bool = True,
    ) -> T:
        """Send a request, and decode its answer as ``kind``.

        A request that is not ``repeatable`` is retried only if no node can have seen it. Raises Unreachable if no node
        answered the last attempt, Refused if the node refused, ClientError if the answer is not that of a node.
        """
        request_id = os.urandom(16).hex()
        headers = self._headers | {"X-Request-Id": request_id} | ({"Content-Type": content_type} if body else {})
        deadline = time.monotonic() + self._retry_s
        for number in count(1):
            failure: ClientError
            wait_s = min(LARGEST_WAIT_S, FIRST_WAIT_S * 2 ** (number - 1)) * random.uniform(0.5, 1.0)
            try:
                fresh = number > 1 or not repeatable
                response = self.connections.exchange(method, target, body, headers, self._timeout_s, fresh)
            except (NotSent, Broken) as error:
                retry = repeatable or isinstance(error, NotSent)
                attempts = "once" if number == 1 else f"{number} times"
                failure = Unreachable(
                    f"node {self.url} did not answer {method} {target.partition('?')[0]}, tried {attempts} "
                    f"({error}): is it up? Start omdml node, or correct the address (request {request_id})",
                    "unreachable",
                    request_id,
                )
                failure.__cause__ = error
            else:
                if 200 <= response.status < 300:
                    return self._read(response, kind, request_id)
                failure = self._refusal(response, request_id)
                retry = repeatable and response.status in RETRIED
                wait_s = max(wait_s, _retry_after(response))
            if not retry or time.monotonic() + wait_s > deadline:
                raise failure
            time.sleep(wait_s)
        raise AssertionError("the loop over attempts ended without an answer or an error")

    def _read(self, response: Response, kind: type[T], request_id: str) -> T:
        try:
            return msgspec.json.decode(response.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._not_of_a_node(response, request_id, str(error)) from error

    def _refusal(self, response: Response, request_id: str) -> ClientError:
        """The error for an answer whose status is no success."""
        # A proxy in front of the node may answer with an HTML page.
        answer: Mapping[str, Any] = {}
        try:
            answer = msgspec.json.decode(response.body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            if response.status not in RETRIED:
                return self._not_of_a_node(response, request_id, "it is no JSON object")
        return refusal(self.url, response.status, answer, response.headers.get("x-request-id", request_id))

    def _not_of_a_node(self, response: Response, request_id: str, why: str) -> ClientError:
        """The error for an answer that no node gives."""
        return ClientError(
            f"{self.url} answered {response.status} {quoted(response.body, 200)}, expected a node's JSON ({why}): is "
            f"this a node of omdml? (request {request_id})",
            "odd_answer",
            request_id,
        )


def _retry_after(response: Response) -> float:
    """Seconds that the node asks to wait; 0 if it gives none, or a date: then our own growing pauses suffice."""
    value = response.headers.get("retry-after", "")
    return float(value) if value.isdecimal() else 0.0
