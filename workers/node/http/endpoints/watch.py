"""Endpoints that show what a node has: items, pictures, how a model changed, what a snapshot holds, and live events."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from omdml.errors import OmdmlError
from omdml.snapshot import Snapshot
from omdml.streams.protocols.store import Pointer
from omdml.workers.node.following.went_live import Remark, Step
from omdml.workers.node.http.endpoints.items.describing import describes
from omdml.workers.node.http.endpoints.items.thumbnails import ThumbnailReader
from omdml.workers.node.http.problems import reply
from omdml.workers.node.http.requests import (
    Compare,
    Events,
    History,
    ItemAtlas,
    ItemPicture,
    Items,
    OfVersion,
    parameters_as,
)
from omdml.workers.node.node import RetrievalNode
from omdml.workers.node.pictures import Pictures
from omdml.workers.node.searching.compare import Comparison, compare_versions
from omdml.workers.node.searching.options import SearchError
from omdml.workers.node.view import View
from omdml.workers.versions.inspection import parts, weight_owner, weights
from omdml.workers.versions.judgement import judgement

# Streams of events that a node keeps open at once.
MAX_STREAMS = 100
# Steps that a stream holds back for a client that reads slowly; older ones are passed over.
WAITING = 1000
# Steps that are kept as bytes.
ENCODED = 100
# Seconds between two messages of a stream, if versions come faster: a page draws no more often than that.
PAUSE_S = 0.25
# Seconds between two looks whether the server stops, and between signs of life for proxies.
LOOK_S, ALIVE_S = 0.5, 15.0
PICTURE = {"cache-control": "private, max-age=300", "x-content-type-options": "nosniff"}


class TooManyStreams(OmdmlError):
    """No more streams of events can be open."""

    reason = "busy"


class Stream(StreamingResponse):
    """A stream that says when it ended, even if it never began because its client had gone."""

    def __init__(self, content: AsyncIterator[bytes], ended: Callable[[], None], **options: Any) -> None:
        super().__init__(content, **options)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


class WatchEndpoints:
    """Endpoints that read, over one node.

    Parameters
    ----------
    pictures
        The pictures of a model's items; None if there are none.
    """

    def __init__(self, node: RetrievalNode, pictures: Callable[[str], Pictures | None]) -> None:
        self._node, self._pictures = node, pictures
        self._thumbnails = ThumbnailReader()
        self._streams = 0
        # The newest steps as server-sent events, by number: all streams send the same bytes.
        self._encoded: dict[int, bytes] = {}

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/models/{model:path}/history", self.history, methods=["GET"]),
            Route("/models/{model:path}/guard", self.guard, methods=["GET"]),
            Route("/models/{model:path}/inspect", self.inspect, methods=["GET"]),
            Route("/models/{model:path}/compare", self.compare, methods=["GET"]),
            Route("/models/{model:path}/steps", self.steps, methods=["GET"]),
            Route("/items", self.items, methods=["GET"]),
            Route("/picture", self.picture, methods=["GET"]),
            Route("/atlas", self.atlas, methods=["GET"]),
            Route("/events", self.events, methods=["GET"]),
        ]

    async def items(self, request: Request) -> Response:
        """A part of the items of a model, in the catalogue's order."""
        asked = parameters_as(Items, request.query_params)
        return reply(await run_in_threadpool(self._items, asked, self._node.view(asked.model)))

    def _items(self, asked: Items, view: View) -> dict[str, Any]:
        attributes = self._node.attributes
        names = view.listed
        if asked.id is not None:
            names = [asked.id] if asked.id in names else []
        if asked.find:
            wanted = asked.find.casefold()
            all_labels = attributes.labels(view, names) or [None] * len(names)
            names = [
                name
                for name, label in zip(names, all_labels, strict=True)
                if wanted in name.casefold() or (label and wanted in label.casefold())
            ]
        fields = asked.fields.split(",") if asked.fields else []
        ids = list(names[asked.offset : asked.offset + asked.limit])
        labels = attributes.labels(view, ids)
        thumbnails = self._thumbnails.places(view.catalogue, ids)
        return {
            "model": view.snapshot.model,
            "items": ids,
            "total": len(names),
            "position": view.position,
            "pictures": self._pictures(view.snapshot.model) is not None or bool(thumbnails),
            "attributes": attributes.names(view),
            "describes": describes(view.catalogue),
            **({} if labels is None else {"labels": labels}),
            **({"values": attributes.values(view, ids, fields)} if fields or asked.id is not None else {}),
            **thumbnails,
        }

    async def picture(self, request: Request) -> Response:
        """``GET /picture``: the picture of an item, or 404."""
        asked = parameters_as(ItemPicture, request.query_params)
        view = self._node.view(asked.model)
        pictures = self._pictures(view.snapshot.model)
        path = await run_in_threadpool(pictures.find, asked.id) if pictures else None
        if path is None:
            path = await run_in_threadpool(self._thumbnails.find, view.catalogue, asked.id)
        if path is None:
            raise SearchError(f"item {asked.id!r} has no picture here", "no_picture")
        return Response(path.data, media_type=path.media, headers=PICTURE)

    async def atlas(self, request: Request) -> Response:
        """An atlas of thumbnails. It never changes within the generation that its address may name."""
        asked = parameters_as(ItemAtlas, request.query_params)
        catalogue = self._node.view(asked.model).catalogue
        atlas = await run_in_threadpool(self._thumbnails.atlas, catalogue, asked.first)
        if atlas is None:
            raise SearchError(
                f"no atlas of thumbnails begins with row {asked.first}: GET /items names them", "no_picture"
            )
        return Response(atlas.data, media_type=atlas.media, headers=PICTURE)

    async def history(self, request: Request) -> Response:
        """The newest moves of a model's live pointer, oldest first, as ``omdml history --json`` has them."""
        asked = parameters_as(History, request.query_params)
        model = self._configured_model(request)
        lines = await run_in_threadpool(self._node.store.history, model)
        return reply({"model": model, "lines": lines[-asked.last :]})

    async def guard(self, request: Request) -> Response:
        """``GET /models/{model}/guard``: what the guard decided last, and by how much."""
        model = self._configured_model(request)

        def live() -> Snapshot | None:
            try:
                return self._node.view(model).snapshot
            except SearchError:
                return None

        return reply(await run_in_threadpool(judgement, self._node.store, model, live))

    async def steps(self, request: Request) -> Response:
        """What went live of a model on this node since it started, oldest first."""
        model = self._configured_model(request)
        return reply({"model": model, "steps": self._node.steps.of(model)})

    async def inspect(self, request: Request) -> Response:
        """``GET /models/{model}/inspect``: what a stored snapshot holds."""
        asked = parameters_as(OfVersion, request.query_params)
        model = self._configured_model(request)
        loaded = await run_in_threadpool(self._node.store.load, model, asked.version)
        if loaded is None:
            missing = "nothing" if asked.version is None else f"no version {asked.version}"
            raise SearchError(f"model {model!r}: {missing} is kept", "not_kept")
        return reply(await run_in_threadpool(inspected, *loaded))

    async def compare(self, request: Request) -> Response:
        """What moved in the answer to one item between two versions."""
        asked, model = parameters_as(Compare, request.query_params), self._configured_model(request)
        return reply(await run_in_threadpool(self._compared, model, asked))

    def _compared(self, model: str, asked: Compare) -> Comparison:
        node = self._node
        before = node.view_of(model, asked.before)
        after = node.view(model) if asked.after is None else node.view_of(model, asked.after)
        expand = node.expand(model) if asked.expand is None else asked.expand
        return compare_versions(before, after, asked.id, asked.k, asked.task, expand)

    async def events(self, request: Request) -> Response:
        """Server-sent events: the newest step of one model, or of each; then every step, and remarks of the history."""
        asked = parameters_as(Events, request.query_params)
        if asked.model is not None:
            self._node.models.require(asked.model)
        if self._streams >= MAX_STREAMS:
            raise TooManyStreams(
                f"{MAX_STREAMS} streams of events are open: close one, or ask GET /models now and then"
            )
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        if request.method == "HEAD":
            # The stream has no end, and the client would wait for it with its next request on this connection.
            head = Response(media_type="text/event-stream", headers=headers)
            del head.headers["content-length"]
            return head
        self._streams += 1
        return Stream(self._stream(request, asked.model), self._ended, media_type="text/event-stream", headers=headers)

    def _ended(self) -> None:
        self._streams -= 1

    async def _stream(self, request: Request, model: str | None) -> AsyncIterator[bytes]:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        waiting: deque[Step | Remark] = deque(maxlen=WAITING)

        def heard(news: Step | Remark) -> None:
            if model in (None, news.model):
                waiting.append(news)
                loop.call_soon_threadsafe(arrived.set)

        end = self._node.steps.listen(heard)
        # A client that comes late, or again after a break, is told what is live, too.
        for step in self._node.steps.newest():
            heard(step)
        try:
            yield b"retry: 1000\n: connected\n\n"
            told_at = time.monotonic() - PAUSE_S
            while not request.app.state.stopping():
                with suppress(TimeoutError):
                    await asyncio.wait_for(arrived.wait(), LOOK_S)
                if arrived.is_set() and (early_s := told_at + PAUSE_S - time.monotonic()) > 0:
                    # The first step after a pause is sent at once. Steps that follow it closely are sent together.
                    await asyncio.sleep(early_s)
                arrived.clear()
                news = [waiting.popleft() for _ in range(len(waiting))]
                if news or time.monotonic() - told_at >= ALIVE_S:
                    told_at = time.monotonic()
                    yield b"".join(map(self._event, news)) or b": alive\n\n"
        finally:
            end()

    def _event(self, news: Step | Remark) -> bytes:
        if isinstance(news, Remark):
            return b"event: remark\ndata: %b\n\n" % msgspec.json.encode(news)
        if news.number not in self._encoded:
            if len(self._encoded) >= ENCODED:
                self._encoded.clear()
            self._encoded[news.number] = as_event(news)
        return self._encoded[news.number]

    def _configured_model(self, request: Request) -> str:
        model: str = request.path_params["model"]
        self._node.models.require(model)
        return model


def as_event(step: Step) -> bytes:
    """A step as a server-sent event."""
    return b"id: %d\nevent: step\ndata: %b\n\n" % (step.number, msgspec.json.encode(step))


def inspected(pointer: Pointer, snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot in words and numbers."""
    return {
        "model": snapshot.model,
        "version": snapshot.version,
        "learner": snapshot.learner,
        "kind": snapshot.metric.kind,
        "generation": snapshot.generation,
        "digest": snapshot.digest,
        "published_at": pointer.published_at,
        "pinned": pointer.pinned,
        "newest_event_at": snapshot.event_time,
        "figures": snapshot.progress,
        "weighed": weight_owner(snapshot.metric),
        "weights": weights(snapshot.metric),
        "tensors": [part._asdict() for part in parts(snapshot.metric)],
    }
