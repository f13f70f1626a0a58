"""The errors that a client raises: one class for each thing that a program can do about an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omdml.errors import OmdmlError


class ClientError(OmdmlError):
    """Base of the errors that a client raises.

    Parameters
    ----------
    message
        What happened, where, and what to do.
    reason
        A short code that never changes: the node's, or the client's own if no node answered.
    request_id
        The id of the request in the node's log.
    """

    def __init__(self, message: str, reason: str, request_id: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.request_id = request_id


class Unreachable(ClientError):
    """No node answered: nothing listens at the URL, the connection broke, or the answer took too long.

    A request that changes something may still have been carried out.
    """


class Refused(ClientError):
    """A node refused a request.

    Parameters
    ----------
    status
        HTTP status of the answer.
    sentence
        The node's message.
    answer
        The whole JSON of the answer; ``errors`` in it lists the first bad events of a request.
    """

    def __init__(
        self, message: str, reason: str, request_id: str, status: int, sentence: str, answer: Mapping[str, Any]
    ) -> None:
        super().__init__(message, reason, request_id)
        self.status = status
        self.sentence = sentence
        self.answer = answer


class BadRequest(Refused):
    """The request is invalid: sending it again would be refused again."""


class Denied(Refused):
    """The token is missing, or does not allow this request."""


class NotFound(Refused):
    """There is no such model, item, version or search."""


class Conflict(Refused):
    """The requested version is kept, but nodes cannot serve it."""


class Unavailable(Refused):
    """The node cannot answer now. The client has retried for as long as ``retry_s`` allows."""


class Behind(Unavailable):
    """The node does not have ``min_version`` yet; ``version`` is the one that it has."""

    @property
    def version(self) -> int:
        """The version that is live on the node."""
        return int(self.answer.get("version", 0))


# Any other status is a plain Refused.
KINDS: dict[int, type[Refused]] = {
    400: BadRequest,
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    413: BadRequest,
    415: BadRequest,
    422: BadRequest,
    429: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def refusal(url: str, status: int, answer: Mapping[str, Any], request_id: str) -> Refused:
    """The error for an answer with this status and JSON."""
    reason = str(answer.get("error", "unknown"))
    sentence = str(answer.get("message") or answer.get("detail") or f"status {status}")
    kind = Behind if reason == "behind" else KINDS.get(status, Refused)
    message = f"node {url} refuses: {sentence} ({reason}, request {request_id})"
    return kind(message, reason, request_id, status, sentence, answer)
