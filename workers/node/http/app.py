"""The node over HTTP as a Starlette app: its routes and its middleware."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect

from omdml.errors import OmdmlError
from omdml.workers.configuration.access import NO_TOKENS, Access
from omdml.workers.node.experiments.experiments import Experiments
from omdml.workers.node.http.connection_limits import MAX_CONNECTIONS
from omdml.workers.node.http.endpoints.console import CONSOLE, FILES_OF
from omdml.workers.node.http.endpoints.experiments import ExperimentEndpoints
from omdml.workers.node.http.endpoints.feedback import FeedbackEndpoints
from omdml.workers.node.http.endpoints.items.changes import ItemEndpoints
from omdml.workers.node.http.endpoints.moves import MoveEndpoints
from omdml.workers.node.http.endpoints.operators import OperatorEndpoints
from omdml.workers.node.http.endpoints.search import SearchEndpoints
from omdml.workers.node.http.endpoints.status import StatusEndpoints
from omdml.workers.node.http.endpoints.watch import WatchEndpoints
from omdml.workers.node.http.middleware.compression import Compressed
from omdml.workers.node.http.middleware.gate import Bodies, Hosts, Tokens
from omdml.workers.node.http.middleware.metrics import HttpMetrics, Measured
from omdml.workers.node.http.middleware.request_id import Identified
from omdml.workers.node.http.problems import client_gone, failed, no_route, refused
from omdml.workers.node.node import RetrievalNode
from omdml.workers.node.pictures import Pictures
from omdml.workers.telemetry.registry import OTHER

# What a page of another origin may send and see; it never sends cookies.
PAGES: dict[str, Any] = {
    "allow_methods": ("GET", "POST", "PUT", "DELETE"),
    "allow_headers": ("authorization", "content-type", "if-none-match", "traceparent", "x-request-id"),
    "expose_headers": ("etag", "retry-after", "x-request-id"),
    "max_age": 3600,
}
# A private node answers these to anybody: they hold nothing about its models.
OPEN = ("/", "/console", "/healthz", "/readyz", "/schema", "/click.js")
# Bytes. Compressing a shorter answer costs more than it saves.
MIN_GZIP_BYTES = 4096


def create_app(
    node: RetrievalNode,
    access: Access = NO_TOKENS,
    hosts: Collection[str] = (),
    pictures: Callable[[str], Pictures | None] = lambda model: None,
    office: Callable[..., bytes] | None = None,
    experiments: Experiments | None = None,
) -> Starlette:
    """The app of a node that is started by the caller; ``access`` says who may write.

    A node without a token answers only requests that name this machine or one of ``hosts``. A node with a token answers
    requests for any host, unless ``hosts`` names some. ``pictures`` returns those of a model's items. ``office`` does
    what operators ask for.
    """
    trials = ExperimentEndpoints(node, access, experiments or Experiments({}))
    routes = [
        *SearchEndpoints(node, trials).routes,
        *FeedbackEndpoints(node, access).routes,
        *MoveEndpoints(node, access).routes,
        *StatusEndpoints(node, access).routes,
        *WatchEndpoints(node, pictures).routes,
        *ItemEndpoints(node, access).routes,
        *trials.routes,
        *OperatorEndpoints(access, office).routes,
        *CONSOLE,
    ]
    handlers: dict[Any, Any] = {OmdmlError: refused, HTTPException: no_route, ClientDisconnect: client_gone}
    # Starlette calls this middleware outside its own exception handlers, so the first one brings the handlers.
    gate = [Middleware(ExceptionMiddleware, handlers=handlers), Middleware(Bodies)]
    if hosts or not access:
        gate.insert(1, Middleware(Hosts, names=hosts))
    if access:
        gate.insert(-1, Middleware(Tokens, access=access, is_open=is_open))
    templates: dict[object, str] = {route.endpoint: route.path_format for route in routes}
    methods: dict[str, tuple[str, ...]] = {}
    for route in routes:
        methods[route.path_format] = (*methods.get(route.path_format, ()), *((route.methods or set()) - {"HEAD"}))
    metrics = HttpMetrics(node.metrics.registry, methods, MAX_CONNECTIONS)
    measured = Middleware(Measured, metrics=metrics, template=lambda scope: templates.get(scope.get("endpoint"), OTHER))
    middleware = [Middleware(Identified), measured]
    if access.origins:
        middleware.append(Middleware(CORSMiddleware, allow_origins=access.origins, **PAGES))
    middleware += [Middleware(Compressed, minimum_size=MIN_GZIP_BYTES, compresslevel=1), *gate]
    app = Starlette(routes=routes, middleware=middleware, exception_handlers={**handlers, Exception: failed})
    # A redirect would name the scheme and host of a proxy wrongly, and clients lose bodies on the way.
    app.router.redirect_slashes = False
    app.state.metrics = metrics
    # The server replaces this when it stops. Streams of events would never end by themselves.
    app.state.stopping = lambda: False
    return app


def is_open(path: str) -> bool:
    """Whether a private node answers this path to anybody."""
    return path in OPEN or path.startswith(FILES_OF)
