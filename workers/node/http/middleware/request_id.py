"""Every request has an id, which is in its answer and in the lines of the log about it."""

from __future__ import annotations

import re
import uuid

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"
# What a proxy sends is taken over if nothing in it can be mistaken for more than an id.
WELL_FORMED = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


class Identified:
    """Takes over the id that a request brings, or makes one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Go on, and add the id to the answer."""
        brought = Headers(scope=scope).get(HEADER, "")
        scope[HEADER] = brought if WELL_FORMED.fullmatch(brought) else uuid.uuid4().hex
        # Each request is a task of its own, so the lines of other requests do not get this id.
        structlog.contextvars.bind_contextvars(request_id=scope[HEADER])

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = scope[HEADER]
            await send(message)

        await self._app(scope, receive, named)
