"""``PUT`` and ``DELETE /items/ID``, and ``POST /items``: changes of items over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from omdml.streams.catalogues.changes.change import (
    Change,
    ChangeError,
    Prepared,
    Value,
    decode_change,
    undecoded,
)
from omdml.streams.describers.pictures import MAX_SENT_BYTES
from omdml.streams.protocols.catalogue import Catalogue
from omdml.workers.configuration.access import Access
from omdml.workers.node.http.body_limits import MAX_FEEDBACK_BYTES
from omdml.workers.node.http.problems import reply
from omdml.workers.node.http.requests import MAX_EVENTS, PictureBytes, Text, body_of, content_type, parameters_as
from omdml.workers.node.node import RetrievalNode

# A picture takes four bytes of base64 for three.
MAX_ITEM_BYTES = (4 << 20) + MAX_SENT_BYTES // 3 * 4
# Pictures that one request may bring: each takes some hundredths of a second to describe.
MAX_PICTURES = 100


class OfModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model whose catalogue is meant. It may be left out if there is only one."""

    model: str | None = None


class PutItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``PUT /items/ID``: what the item is, its attributes, or both.

    ``features`` says what it is; ``text`` and ``picture`` can stand for these.
    """

    features: dict[str, list[float]] | None = None
    text: Text = None
    picture: PictureBytes = None
    attributes: dict[str, Value] | None = None


class ItemsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The changes are durable, and this node searches with them."""

    model: str
    position: int
    put: int
    attributes: int
    deleted: int
    unknown: list[str]


class ItemEndpoints:
    """Endpoints that change the items of a node's catalogues. If the node has a token, a request must send it."""

    def __init__(self, node: RetrievalNode, access: Access) -> None:
        self._node, self._access = node, access
        self.routes = [
            Route("/items", self.post, methods=["POST"]),
            Route("/items/{id:path}", self.put, methods=["PUT"]),
            Route("/items/{id:path}", self.delete, methods=["DELETE"]),
        ]

    async def put(self, request: Request) -> Response:
        """Put one item, or give it other attributes; a body that is a picture puts the item with that alone."""
        self._access.check(request.headers, "items")
        item: str = request.path_params["id"]
        body = await body_of(request, MAX_ITEM_BYTES)
        if content_type(request).startswith("image/"):
            return await self._change(request, [{"id": item, "picture": body}])
        try:
            asked = msgspec.json.decode(body, type=PutItem)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            expected = '{"features": {"color": [...]}, "attributes": {"price": 9.5}}'
            raise undecoded(error, body, f"item {item!r}", PutItem, expected) from error
        return await self._change(request, [{"id": item, **msgspec.structs.asdict(asked)}])

    async def delete(self, request: Request) -> Response:
        """Answer ``DELETE /items/{id}``: delete one item, as a line of a change would."""
        self._access.check(request.headers, "items")
        return await self._change(request, [{"id": request.path_params["id"], "delete": True}])

    async def post(self, request: Request) -> Response:
        """Make the changes in JSON lines, all or none."""
        self._access.check(request.headers, "items")
        lines = [line for line in (await body_of(request, MAX_FEEDBACK_BYTES)).split(b"\n") if line.strip()]
        if not lines:
            raise ChangeError("the body holds no change: send one change on each line", "invalid")
        if len(lines) > MAX_EVENTS:
            raise ChangeError(f"{len(lines)} changes, at most {MAX_EVENTS} are made at once: split them", "oversize")
        return await self._change(request, lines)

    async def _change(self, request: Request, bodies: Sequence[bytes | dict[str, Any]]) -> Response:
        model = self._node.models.find(parameters_as(OfModel, request.query_params).model)
        catalogue, changes = await run_in_threadpool(self._prepared, model, bodies)
        done = await asyncio.wrap_future(self._node.items.put(catalogue, changes))
        return reply(ItemsChanged(model=model, **done._asdict()))

    def _prepared(self, model: str, bodies: Sequence[bytes | dict[str, Any]]) -> tuple[Catalogue, Prepared]:
        catalogue = self._node.catalogues(model)
        return catalogue, catalogue.prepare(decoded(bodies))


def decoded(bodies: Sequence[bytes | dict[str, Any]]) -> list[Change]:
    """The changes of a request; ChangeError says which line is bad, counted from 1."""
    if len(bodies) == 1:
        return [decode_change(bodies[0], "change")]
    changes = [decode_change(line, f"change {number}") for number, line in enumerate(bodies, start=1)]
    if (count := sum(change.picture is not None for change in changes)) > MAX_PICTURES:
        raise ChangeError(f"{count} pictures, expected at most {MAX_PICTURES} in a request: split them", "oversize")
    return changes
