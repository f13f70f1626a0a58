"""The endpoints of a node that search, take feedback, move versions and tell how the node is."""

from __future__ import annotations

import asyncio
import hashlib
import math
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import structlog
from prometheus_client.exposition import choose_encoder
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from omdml.errors import SourceError
from omdml.streams.protocols.store import Pointer, Why
from omdml.workers.configuration.access import MAKE_ONE, Access, AccessError
from omdml.workers.node.galleries.gallery import Query
from omdml.workers.node.http.body_limits import MAX_FEEDBACK_BYTES, MAX_MOVE_BYTES, MAX_PICTURE_QUERY_BYTES
from omdml.workers.node.http.endpoints.items.describing import described
from omdml.workers.node.http.endpoints.trials import Trials
from omdml.workers.node.http.min_version import view_from
from omdml.workers.node.http.openapi import document
from omdml.workers.node.http.problems import error_reply, reply
from omdml.workers.node.http.requests import (
    MAX_ERRORS,
    Look,
    Move,
    Search,
    body_of,
    check_events,
    content_type,
    move_of_body,
    own_query,
    parameters_as,
    search_of_body,
    search_of_parameters,
)
from omdml.workers.node.live_model import View
from omdml.workers.node.node import RetrievalNode
from omdml.workers.node.searching.answers import Answers, Paging, single
from omdml.workers.node.searching.options import Options, SearchError
from omdml.workers.node.searching.shared_scans import Asked, SharedScans
from omdml.workers.node.writing.inbox import traced
from omdml.workers.telemetry import traces
from omdml.workers.telemetry.single_models import PATH
from omdml.workers.versions import moves

# Bytes. A body up to this size is parsed at once, because the hop to a thread would take longer.
INLINE_BYTES = 16_384
CLICK_JS = Path(__file__).with_name("click.js").read_bytes()
CLICK_JS_TAG = f'"{hashlib.sha256(CLICK_JS).hexdigest()[:16]}"'

log = structlog.get_logger(__name__)


class Api:
    """The endpoints over one node: search, feedback, versions, health."""

    def __init__(self, node: RetrievalNode, access: Access, trials: Trials) -> None:
        self._node, self._access, self._trials = node, access, trials
        self._scans = SharedScans(node)
        self._moving = threading.Lock()

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/search", self.search_item, methods=["GET"]),
            Route("/search", self.search, methods=["POST"]),
            Route("/feedback", self.feedback, methods=["POST"]),
            Route("/session", self.session, methods=["POST"]),
            Route("/models", self.models, methods=["GET"]),
            Route("/models/{model}/rollback", self.rollback, methods=["POST"]),
            Route("/models/{model}/pin", self.pin, methods=["POST"]),
            Route("/models/{model}/unpin", self.unpin, methods=["POST"]),
            Route("/healthz", self.healthz, methods=["GET"]),
            Route("/readyz", self.readyz, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route(PATH, self.single_models, methods=["GET"]),
            Route("/schema", self.schema, methods=["GET"]),
            Route("/click.js", self.click_js, methods=["GET"]),
        ]

    async def search_item(self, request: Request) -> Response:
        """``GET /search``: the items closest to one item; 304 if the client has this answer already."""
        asked = search_of_parameters(request.query_params)
        view = await self._view(asked)
        if mixed := await self._trials.answer(view, asked, request, self._answers_of):
            return reply(mixed)
        headers = {"etag": self._tag(view, asked), "cache-control": "no-cache"}
        if headers["etag"] in request.headers.get("if-none-match", "").split(", "):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        response = await self._search(view, asked)
        response.headers.update(headers)
        return response

    async def search(self, request: Request) -> Response:
        """``POST /search``: the items closest to items, raw vectors, texts or pictures."""
        body = await body_of(request, MAX_PICTURE_QUERY_BYTES)
        asked = await run_in_threadpool(search_of_body, body) if len(body) > INLINE_BYTES else search_of_body(body)
        view = await self._view(asked)
        if any(query.brings for query in asked.queries or [own_query(asked)]):
            asked = await run_in_threadpool(described, view.catalogue, asked)
        if mixed := await self._trials.answer(view, asked, request, self._answers_of):
            return reply(mixed)
        return await self._search(view, asked)

    async def _view(self, asked: Search) -> View:
        if asked.version is not None:
            return await run_in_threadpool(self._node.view_of, asked.model, asked.version)
        return await view_from(self._node, asked.model, asked.min_version)

    def _expand(self, view: View, asked: Search) -> int:
        return self._node.expand(view.snapshot.model) if asked.expand is None else asked.expand

    def _tag(self, view: View, asked: Search) -> str:
        """The same tag for the same request on any node, until the answer changes; ``took_s`` does not count."""
        parent = view.parent.version if view.parent else 0
        # A bridge answers some requests by the version before.
        moving = int(view.origin is not None)
        # Another state of the index may propose other candidates.
        candidates = view.two_stage.index.tag if view.two_stage else 0
        parts = (view.snapshot.version, parent, view.position, self._expand(view, asked), moving, candidates)
        return f'W/"{view.pointer.serial}-{"-".join(map(str, parts))}-{view.catalogue.generation}"'

    def _queries(self, view: View, asked: Search) -> list[Query]:
        return [
            view.query(query.names, query.features, asked.by, asked.rerank)
            for query in asked.queries or [own_query(asked)]
        ]

    def _answers_of(self, view: View, asked: Search) -> Answers:
        return self._answers(view, self._queries(view, asked), asked)

    async def _search(self, view: View, asked: Search) -> Response:
        queries = self._queries(view, asked)
        alone = asked.filter is not None or asked.fields or asked.by or asked.rerank
        if alone or any(query.by_elements for query in queries):
            answers = await run_in_threadpool(self._answers, view, queries, asked)
        else:
            page, options = self._page_and_options(view, asked)
            answers = await self._scans.answers(view, queries, Asked(asked.k, asked.task, page, options))
        return reply(single(answers) if asked.queries is None else answers)

    def _page_and_options(self, view: View, asked: Search) -> tuple[Paging, Options]:
        return Paging(asked.offset, tuple(asked.exclude)), Options(self._expand(view, asked), asked.explain)

    def _answers(self, view: View, queries: list[Query], asked: Search) -> Answers:
        node = self._node
        if asked.filter is not None:
            filtered = node.attributes.filtered(view, queries[0], asked.filter)
            queries = [query._replace(among=filtered.among, pushed=filtered.pushed) for query in queries]
        answers = node.answers(view, queries, asked.k, asked.task, *self._page_and_options(view, asked))
        return node.attributes.with_fields(view, answers, asked.fields) if asked.fields else answers

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

    async def session(self, request: Request) -> Response:
        """Give a browser that brings a token a cookie that may read: pictures and event streams can send no token."""
        if not self._access:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        name, value = self._access.session(request.headers)
        response = Response(status_code=HTTPStatus.NO_CONTENT)
        response.set_cookie(name, value, httponly=True, samesite="strict")
        return response

    async def models(self, request: Request) -> Response:
        """``GET /models``: what answers for each model, and how fresh it is."""
        since = parameters_as(Look, request.query_params).since
        node = self._node
        return reply(
            {
                "models": node.readiness.describe(since),
                "patterns": node.models.patterns,
                "stale_seconds": node.stale_seconds,
            }
        )

    async def rollback(self, request: Request) -> Response:
        """Answer with an older version from now on, whatever is learned."""
        return await self._move(request, moves.rollback)

    async def pin(self, request: Request) -> Response:
        """Answer with this version, whatever is learned."""
        return await self._move(request, moves.pin)

    async def unpin(self, request: Request) -> Response:
        """Answer with the newest version again."""
        return await self._move(request, moves.unpin)

    async def _move(self, request: Request, move: Callable[..., Pointer]) -> Response:
        """Move the pointer that all nodes follow; only if there is a token to know who may."""
        if not self._access.moves:
            reason = "this node has no node.token, nor one in node.tokens with the role operator"
            advice = f"{MAKE_ONE}, or move the version with the command omdml {move.__name__}"
            raise AccessError(f"{reason}, so nobody can move versions here: {advice}", "forbidden")
        actor = self._access.check(request.headers, "operator")
        asked = move_of_body(await body_of(request, MAX_MOVE_BYTES))
        if asked.version is not None and move is moves.unpin:
            raise SearchError("unpin goes to the newest version, and takes none", "invalid")
        model: str = request.path_params["model"]
        self._node.models.require(model)
        pointer = await run_in_threadpool(self._moved, move, model, asked, Why(actor, asked.reason))
        log.info("moved", how=move.__name__, model=model, version=pointer.version, serial=pointer.serial,
                  actor=actor, reason=asked.reason)  # fmt: skip
        return reply({"model": model, "version": pointer.version, "serial": pointer.serial, "pinned": pointer.pinned})

    def _moved(self, move: Callable[..., Pointer], model: str, asked: Move, why: Why) -> Pointer:
        store = self._node.store
        # Of two who press a button in the same moment, the second one sees the move of the first.
        with self._moving:
            if asked.seen is not None:
                moves.check_seen(store, model, asked.seen)
            if move is moves.unpin:
                return move(store, model, why=why)
            return move(store, model, asked.version, kind=self._node.catalogues(model), why=why)

    async def healthz(self, _: Request) -> Response:
        """200 while the node's threads make progress."""
        if self._node.alive:
            return reply({"status": "ok"})
        message = "a background thread makes no progress: restart this node"
        return error_reply(HTTPStatus.SERVICE_UNAVAILABLE, "stuck", message)

    async def readyz(self, _: Request) -> Response:
        """200 once the models that ``node.ready`` asks for can answer, with the live version or an older one."""
        readiness = self._node.readiness
        missing = readiness.awaited()
        seen = {"refused": readiness.instead(), "store_fell_back": readiness.fell_back()}
        more = {what: models for what, models in seen.items() if models}
        if not missing:
            return reply({"status": "ready", **more})
        message = f"no snapshot that can be served yet: {', '.join(missing)}"
        return error_reply(HTTPStatus.SERVICE_UNAVAILABLE, "not_ready", message, missing=missing, **more)

    async def metrics(self, request: Request) -> Response:
        """``GET /metrics``: for Prometheus, in the format that it asks for."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self._node.metrics.registry), headers={"content-type": content_type})

    async def single_models(self, request: Request) -> Response:
        """Answer metrics of single models, for Prometheus too."""
        registry = self._node.metrics.single.page(request.url.query)
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        # A thousand models take longer to encode than a search may wait.
        return Response(await run_in_threadpool(encode, registry), headers={"content-type": content_type})

    async def schema(self, _: Request) -> Response:
        """``GET /schema``: the OpenAPI document."""
        return Response(document(), media_type="application/json")

    async def click_js(self, request: Request) -> Response:
        """What a shop's page includes to send its clicks; a browser keeps it for an hour."""
        headers = {"cache-control": "public, max-age=3600", "etag": CLICK_JS_TAG}
        if request.headers.get("if-none-match") == CLICK_JS_TAG:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(CLICK_JS, media_type="text/javascript", headers=headers)
