"""What can go wrong between a client and a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omdml.errors import OmdmlError


class ClientError(OmdmlError):
    """Base of what a client raises.

    Parameters
    ----------
    message
        What happened, where, and what to do.
    reason
        The node's code, which never changes; the client's own if no node answered.
    request_id
        The id under which the node's log tells of the request.
    """

    def __init__(self, message: str, reason: str, request_id: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.request_id = request_id


class Unreachable(ClientError):
    """No node answered: nobody listens there, the connection broke, or the answer took too long.

    A request that changes something may have been carried out all the same.
    """


class Refused(ClientError):
    """A node answered that it does not do what was asked.

    Parameters
    ----------
    status
        HTTP's.
    sentence
        The node's own words.
    told
        The whole JSON of the answer; ``errors`` in it lists the first bad events of a request.
    """

    def __init__(
        self, message: str, reason: str, request_id: str, status: int, sentence: str, told: Mapping[str, Any]
    ) -> None:
        super().__init__(message, reason, request_id)
        self.status = status
        self.sentence = sentence
        self.told = told


class BadRequest(Refused):
    """What was asked makes no sense to the node."""


class Denied(Refused):
    """The token is missing, or does not allow this."""


class NotFound(Refused):
    """No such model, item or version."""


class Conflict(Refused):
    """The version cannot be served."""


class Unavailable(Refused):
    """The node cannot do it now, and the client has asked again for as long as it may."""


class Behind(Unavailable):
    """The node has no version as new as ``min_version`` yet; ``version`` is the one that it has."""

    @property
    def version(self) -> int:
        """The live version."""
        return int(self.told.get("version", 0))


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
}  # every other status is a Refused and no more


def refusal(url: str, status: int, told: Mapping[str, Any], request_id: str) -> Refused:
    """The error that an answer stands for."""
    reason = str(told.get("error", "unknown"))
    sentence = str(told.get("message") or told.get("detail") or f"status {status}")
    kind = Behind if reason == "behind" else KINDS.get(status, Refused)
    message = f"node {url} refuses: {sentence} ({reason}, request {request_id})"
    return kind(message, reason, request_id, status, sentence, told)
