"""Feedback over HTTP: ``POST /feedback``, and the script by which a shop's page sends clicks there."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from http import HTTPStatus
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from omdml.errors import SourceError
from omdml.workers.configuration.access import Access
from omdml.workers.node.http import etags
from omdml.workers.node.http.body_limits import INLINE_BYTES, MAX_FEEDBACK_BYTES
from omdml.workers.node.http.problems import error_reply, reply
from omdml.workers.node.http.requests import MAX_ERRORS, body_of, check_events, content_type
from omdml.workers.node.node import RetrievalNode
from omdml.workers.node.writing.inbox import traced
from omdml.workers.telemetry import traces

CLICK_JS = Path(__file__).with_name("click.js").read_bytes()
CLICK_JS_TAG = f'"{hashlib.sha256(CLICK_JS).hexdigest()[:16]}"'


class FeedbackEndpoints:
    """The endpoints that take feedback for one node's log."""

    def __init__(self, node: RetrievalNode, access: Access) -> None:
        self._node, self._access = node, access

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/feedback", self.feedback, methods=["POST"]),
            Route("/click.js", self.click_js, methods=["GET"]),
        ]

    async def feedback(self, request: Request) -> Response:
        """``POST /feedback``: accept one event, or JSON lines of events, all or none. Answers once they are durable."""
        self._access.check(request.headers)
        inbox = self._node.inbox
        if inbox is None:
            raise SourceError("this node takes no feedback: it was started without a feedback log")
        body, kind = await body_of(request, MAX_FEEDBACK_BYTES), content_type(request)
        if len(body) <= INLINE_BYTES:
            checked = check_events(inbox, body, kind)
        else:
            checked = await run_in_threadpool(check_events, inbox, body, kind)
        if checked.bad:
            first = checked.bad[0]
            details = {"number": first.number, "bad": len(checked.bad), "errors": checked.bad[:MAX_ERRORS]}
            return error_reply(HTTPStatus.BAD_REQUEST, first.error, f"event {first.number}: {first.message}", **details)
        accepted = 0
        # Some logs count times in milliseconds.
        taken_at = math.floor(time.time() * 1000) / 1000
        if checked.events:
            parent = traces.context_of(request.headers.get(traces.HEADER, ""))
            with traces.span("feedback.accept", parent, events=len(checked.events)) as context:
                accepted = await asyncio.wrap_future(inbox.put(traced(checked.events, context)))
        unread = {"unread_fields": checked.unread.in_words(checked.unread.counts)} if checked.unread.counts else {}
        return reply({"accepted": accepted, "at": taken_at, **unread}, HTTPStatus.ACCEPTED)

    async def click_js(self, request: Request) -> Response:
        """What a shop's page includes to send its clicks; a browser keeps it for an hour."""
        headers = {"cache-control": "public, max-age=3600", "etag": CLICK_JS_TAG}
        if etags.has(request, CLICK_JS_TAG) or etags.has_any(request):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(CLICK_JS, media_type="text/javascript", headers=headers)
