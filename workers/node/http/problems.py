"""What a node refuses, as RFC 9457 describes problems."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

PROBLEM = "application/problem+json"


def problem(status: HTTPStatus, error: str, message: str, **more: object) -> bytes:
    """The body of a refusal: ``error`` is a code that never changes, ``message`` a sentence."""
    problem = {"title": status.phrase, "status": status.value, "detail": message, "error": error, "message": message}
    return msgspec.json.encode({**problem, **more})
