"""How a node is, over HTTP: its models, probes, metrics and OpenAPI document; and sessions for browsers."""

from __future__ import annotations

from http import HTTPStatus

from prometheus_client.exposition import choose_encoder
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from omdml.workers.configuration.access import Access
from omdml.workers.node.http.openapi import document
from omdml.workers.node.http.problems import error_reply, reply
from omdml.workers.node.http.requests import ModelsSince, parameters_as
from omdml.workers.node.node import RetrievalNode
from omdml.workers.telemetry.single_models import PATH


class StatusEndpoints:
    """The endpoints that tell how one node is."""

    def __init__(self, node: RetrievalNode, access: Access) -> None:
        self._node, self._access = node, access

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/models", self.models, methods=["GET"]),
            Route("/healthz", self.healthz, methods=["GET"]),
            Route("/readyz", self.readyz, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route(PATH, self.single_models, methods=["GET"]),
            Route("/schema", self.schema, methods=["GET"]),
            Route("/session", self.session, methods=["POST"]),
        ]

    async def models(self, request: Request) -> Response:
        """``GET /models``: what answers for each model, and how fresh it is."""
        since = parameters_as(ModelsSince, request.query_params).since
        node = self._node
        return reply(
            {
                "models": node.readiness.describe(since),
                "patterns": node.models.patterns,
                "stale_seconds": node.stale_seconds,
            }
        )

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
        """Answer ``GET /schema`` with the OpenAPI document of this node."""
        return Response(document(), media_type="application/json")

    async def session(self, request: Request) -> Response:
        """Give a browser that brings a token a cookie that may read: pictures and event streams can send no token."""
        if not self._access:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        name, value = self._access.session(request.headers)
        response = Response(status_code=HTTPStatus.NO_CONTENT)
        response.set_cookie(name, value, httponly=True, samesite="strict")
        return response
