"""Every error that a node answers over HTTP: its status, its code, and its body, a problem of RFC 9457."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from omdml.errors import OmdmlError
from omdml.workers.node.http.middleware.request_id import HEADER
from omdml.workers.node.http.min_version import Behind

PROBLEM = "application/problem+json"
# The path of an item, to put or to delete it.
ITEM = "/items/"
# The status of each code of an error. Every other code is a bad request.
STATUS = {
    "unauthorized": HTTPStatus.UNAUTHORIZED,
    "forbidden": HTTPStatus.FORBIDDEN,
    "foreign_host": HTTPStatus.MISDIRECTED_REQUEST,
    "not_kept": HTTPStatus.NOT_FOUND,
    "no_picture": HTTPStatus.NOT_FOUND,
    "no_letter": HTTPStatus.NOT_FOUND,
    "not_here": HTTPStatus.NOT_IMPLEMENTED,
    "timeout": HTTPStatus.GATEWAY_TIMEOUT,
    "internal": HTTPStatus.INTERNAL_SERVER_ERROR,
    "unservable": HTTPStatus.CONFLICT,
    "moved": HTTPStatus.CONFLICT,
    "unknown_model": HTTPStatus.NOT_FOUND,
    "unknown_item": HTTPStatus.NOT_FOUND,
    "unknown_search": HTTPStatus.NOT_FOUND,
    "oversize": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "encoded": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "corrupt": HTTPStatus.INTERNAL_SERVER_ERROR,
    "too_many": HTTPStatus.TOO_MANY_REQUESTS,
    "behind": HTTPStatus.SERVICE_UNAVAILABLE,
    "busy": HTTPStatus.SERVICE_UNAVAILABLE,
    "index_away": HTTPStatus.SERVICE_UNAVAILABLE,
    "not_ready": HTTPStatus.SERVICE_UNAVAILABLE,
    "source": HTTPStatus.SERVICE_UNAVAILABLE,
    "store": HTTPStatus.SERVICE_UNAVAILABLE,
    "catalogue": HTTPStatus.SERVICE_UNAVAILABLE,
}
# Seconds after which the same request may succeed.
RETRY_AFTER = {"behind": "1", "busy": "1", "too_many": "1"}

log = structlog.get_logger(__name__)


def problem(status: HTTPStatus, error: str, message: str, **more: object) -> bytes:
    """The body of a refusal: ``error`` is a code that never changes, ``message`` a sentence."""
    problem = {"title": status.phrase, "status": status.value, "detail": message, "error": error, "message": message}
    return msgspec.json.encode({**problem, **more})


def reply(content: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def error_reply(status: HTTPStatus, error: str, message: str, **more: object) -> Response:
    """A refusal: a code that never changes, and a sentence."""
    return Response(problem(status, error, message, **more), status, media_type=PROBLEM)


async def refused(_: Request, error: OmdmlError) -> Response:
    more = {"version": error.version} if isinstance(error, Behind) else {}
    response = error_reply(STATUS.get(error.reason, HTTPStatus.BAD_REQUEST), error.reason, str(error), **more)
    if error.reason in RETRY_AFTER:
        response.headers["retry-after"] = RETRY_AFTER[error.reason]
    if response.status_code == HTTPStatus.UNAUTHORIZED:
        response.headers["www-authenticate"] = "Bearer"
    return response


async def no_route(request: Request, error: HTTPException) -> Response:
    status = HTTPStatus(error.status_code)
    allowed = _allowed(request) if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    message = f"{request.method} {request.url.path}: {status.phrase.lower()}; {_advice(request, allowed)}"
    response = error_reply(status, status.name.lower(), message)
    response.headers.update(error.headers or {})
    if allowed:
        response.headers["Allow"] = allowed
    return response


def _allowed(request: Request) -> str:
    """The methods that the path takes. Starlette knows only those of the first route with this path."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in routes for method in getattr(route, "methods", None) or ()}))


def _advice(request: Request, allowed: str) -> str:
    """What to send in the place of a request whose path or method does not exist."""
    path = request.url.path
    if request.method == "GET" and path.startswith(ITEM) and path != ITEM:
        model = f"&model={quote(name)}" if (name := request.query_params.get("model")) else ""
        return f"GET /items?id={quote(path.removeprefix(ITEM), safe='')}{model} answers this item with its attributes"
    return f"{f'it takes {allowed}; ' if allowed else ''}GET /schema says what there is"


async def client_gone(_: Request, __: ClientDisconnect) -> Response:
    # The client is gone, so this answer is not read.
    return Response(status_code=HTTPStatus.BAD_REQUEST)


async def failed(request: Request, error: Exception) -> Response:
    log.error("request_failed", method=request.method, path=request.url.path, error=repr(error))
    message = f"this node failed to answer: see its log, request_id={request.scope[HEADER]}"
    response = error_reply(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", message)
    # The middleware that adds this header to the other answers does not see this one.
    response.headers[HEADER] = request.scope[HEADER]
    return response
