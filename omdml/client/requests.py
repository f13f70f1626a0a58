"""Requests to a node, sent again while that may help."""

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
from omdml.errors import ParameterError

T = TypeVar("T")
JSON, JSON_LINES = "application/json", "application/x-ndjson"
# Answers after which the same request may succeed: the node waits for something, or has too much to do.
AGAIN = (429, 502, 503, 504)
# Seconds before the second attempt, at most; before each further one twice as many, up to the largest.
FIRST_WAIT_S, LARGEST_WAIT_S = 0.1, 2.0


class Requests:
    """Sends requests to one node. Any number of threads may use it.

    Parameters
    ----------
    url
        The node's.
    token
        The node's, if it has one.
    timeout_s
        Seconds for each attempt, from connecting to the answer's last byte.
    retry_s
        Seconds after which no further attempt begins. 0: one attempt.
    tls
        For https: what to trust; by default what the system trusts.
    """

    def __init__(self, url: str, token: str, timeout_s: float, retry_s: float, tls: ssl.SSLContext | None) -> None:
        if not timeout_s > 0 or not retry_s >= 0:
            raise ParameterError(f"timeout_s is {timeout_s}, retry_s {retry_s}: expected one above 0, and 0 or more")
        self.url = url
        self.connections = Connections(url, tls)
        self._timeout_s, self._retry_s = timeout_s, retry_s
        self._headers = {"Accept": JSON} | ({"Authorization": f"Bearer {token}"} if token else {})

    def get(self, path: str, kind: type[T], **parameters: str | int) -> T:
        """The answer of a GET."""
        return self.send("GET", f"{path}?{urlencode(parameters)}" if parameters else path, kind)

    def post(self, path: str, kind: type[T], content: object, *, repeatable: bool = True) -> T:
        """The answer of a POST of JSON."""
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
        """The answer of a request, as ``kind``.

        A request that is not ``repeatable`` is sent again only if no node can have seen it. Raises Unreachable if the
        last attempt met nobody, Refused as the node's answer says, ClientError for one that makes no sense.
        """
        request_id = os.urandom(16).hex()
        headers = self._headers | {"X-Request-Id": request_id} | ({"Content-Type": content_type} if body else {})
        until = time.monotonic() + self._retry_s
        for number in count(1):
            failure: ClientError
            wait_s = min(LARGEST_WAIT_S, FIRST_WAIT_S * 2 ** (number - 1)) * random.uniform(0.5, 1.0)
            try:
                fresh = number > 1 or not repeatable
                response = self.connections.exchange(method, target, body, headers, self._timeout_s, fresh)
            except (NotSent, Broken) as error:
                again = repeatable or isinstance(error, NotSent)
                failure = Unreachable(
                    f"node {self.url} did not answer {method} {target.partition('?')[0]}, tried {number} times "
                    f"({error}): is it up? (request {request_id})",
                    "unreachable",
                    request_id,
                )
                failure.__cause__ = error
            else:
                if 200 <= response.status < 300:
                    return self._read(response, kind, request_id)
                failure = self._refusal(response, request_id)
                again = repeatable and response.status in AGAIN
                wait_s = max(wait_s, _retry_after(response))
            if not again or time.monotonic() + wait_s > until:
                raise failure
            time.sleep(wait_s)
        raise AssertionError("attempts have no end of their own")

    def _read(self, response: Response, kind: type[T], request_id: str) -> T:
        try:
            return msgspec.json.decode(response.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._odd(response, request_id, str(error)) from error

    def _refusal(self, response: Response, request_id: str) -> ClientError:
        # A proxy before the node may answer pages for people.
        told: Mapping[str, Any] = {}
        try:
            told = msgspec.json.decode(response.body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            if response.status not in AGAIN:
                return self._odd(response, request_id, "it is no JSON object")
        return refusal(self.url, response.status, told, response.headers.get("x-request-id", request_id))

    def _odd(self, response: Response, request_id: str, why: str) -> ClientError:
        return ClientError(
            f"{self.url} answered {response.status} {response.body[:200]!r}, expected a node's JSON ({why}): is this a "
            f"node of omdml? (request {request_id})",
            "odd_answer",
            request_id,
        )


def _retry_after(response: Response) -> float:
    """Seconds that the node asks to wait. A date instead of seconds counts as nothing: the back-off does."""
    told = response.headers.get("retry-after", "")
    return float(told) if told.isdecimal() else 0.0
