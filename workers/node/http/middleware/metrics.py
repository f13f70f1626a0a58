"""What Prometheus sees of a node's HTTP server."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omdml.workers.telemetry.registry import FAST, OTHER, Families, at_zero

# A request that is no HTTP, or too long, is refused before anybody knows what it asks for.
METHODS = ("GET", "POST", "PUT", "DELETE", OTHER)
CODES = {"/search": ("200", "400", "404", "503"), "/feedback": ("202", "400", "401", "413", "503")}
FAILED = "500"


class HttpMetrics:
    """Counters and gauges of one HTTP server.

    Parameters
    ----------
    routes
        Methods by path template; every other path counts as ``other``.
    """

    def __init__(self, registry: CollectorRegistry, routes: Mapping[str, tuple[str, ...]], limit: int) -> None:
        new = Families("omdml_http", registry)
        self.requests = new.counter("requests_total", "Requests answered", route=(), method=(), code=())
        self.seconds = new.seconds(
            "request_duration", "Seconds from a request's head to the end of its answer", FAST, route=[*routes, OTHER]
        )
        for route, methods in routes.items():
            at_zero(self.requests, [route], methods, [*CODES.get(route, ["200"]), FAILED])
        at_zero(self.requests, [OTHER], METHODS, ["400", "404", "405", "431"])
        self.in_flight = new.gauge("requests_in_flight", "Requests in progress")
        self.connections = new.gauge("connections", "Open connections")
        self.refused = new.counter("connections_refused_total", "Connections refused because too many were open")
        new.gauge("connections_limit", "Most open connections allowed").set(limit)

    def not_a_request(self, code: int) -> None:
        """Count a connection that was ended because it sent no request, or one that is too long."""
        self.requests.labels(OTHER, OTHER, str(code)).inc()


class Measured:
    """Counts requests and measures how long they take, around everything else.

    Parameters
    ----------
    template
        The path template of the endpoint that a request was routed to; ``other`` if it was to none.
    """

    def __init__(self, app: ASGIApp, metrics: HttpMetrics, template: Callable[[Scope], str]) -> None:
        self._app, self._metrics, self._template = app, metrics, template

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Go on, and count the answer."""
        code, begin = "", time.perf_counter()

        async def seen(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = str(message["status"])
            await send(message)

        self._metrics.in_flight.inc()
        try:
            await self._app(scope, receive, seen)
        finally:
            self._metrics.in_flight.dec()
            route = self._template(scope)
            method = scope["method"] if scope["method"] in METHODS else OTHER
            self._metrics.requests.labels(route, method, code or FAILED).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - begin)
