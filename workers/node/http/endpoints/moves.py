"""Moves of versions over HTTP: rollback, pin and unpin."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from omdml.streams.protocols.store import Pointer, Why
from omdml.workers.configuration.access import MAKE_ONE, Access, AccessError
from omdml.workers.node.http.body_limits import MAX_MOVE_BYTES
from omdml.workers.node.http.problems import reply
from omdml.workers.node.http.requests import Move, body_of, move_of_body
from omdml.workers.node.node import RetrievalNode
from omdml.workers.node.searching.options import SearchError
from omdml.workers.versions import moves

log = structlog.get_logger(__name__)


class MoveEndpoints:
    """The endpoints that move the version which all nodes answer with."""

    def __init__(self, node: RetrievalNode, access: Access) -> None:
        self._node, self._access = node, access
        self._moving = threading.Lock()

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/models/{model:path}/rollback", self.rollback, methods=["POST"]),
            Route("/models/{model:path}/pin", self.pin, methods=["POST"]),
            Route("/models/{model:path}/unpin", self.unpin, methods=["POST"]),
        ]

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
            raise SearchError("unpin takes no version, because the newest one goes live: leave version out", "invalid")
        model: str = request.path_params["model"]
        self._node.models.require(model)
        pointer = await run_in_threadpool(self._moved, move, model, asked, Why(actor, asked.reason))
        log.info("moved", how=move.__name__, model=model, version=pointer.version, serial=pointer.serial,
                  actor=actor, reason=asked.reason)  # fmt: skip
        return reply({"model": model, "version": pointer.version, "serial": pointer.serial, "pinned": pointer.pinned})

    def _moved(self, move: Callable[..., Pointer], model: str, asked: Move, why: Why) -> Pointer:
        store = self._node.store
        # If two people press a button at the same moment, the second request sees the move of the first.
        with self._moving:
            if asked.seen is not None:
                moves.check_seen(store, model, asked.seen)
            if move is moves.unpin:
                return move(store, model, why=why)
            return move(store, model, asked.version, kind=self._node.catalogues(model), why=why)
