"""One click followed through all stages by its trace context (W3C), and spans of the stages if OpenTelemetry is there.

The context comes with POST /feedback, lies in the event's record as the header ``traceparent``, goes from there into
the trail of the publication that first held the event, and with that to the nodes. Exemplars of histograms name its
trace. Without the extra ``otel``, or without OTEL_EXPORTER_OTLP_ENDPOINT, nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

HEADER = "traceparent"
# A newer version of the standard may have more fields; those of version 00 are read all the same.
_CONTEXT = re.compile(r"(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
# The flags that there are: sampled, and random. The standard wants all others to be sent as 0.
_FLAGS = 0b11
# At most this many characters are looked at.
_LONGEST = 256
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_tracer: Tracer | None = None

log = structlog.get_logger(__name__)


def context_of(text: str) -> str:
    """The trace context that a header brings; empty if it is none, as the standard has it.

    Examples
    --------
    >>> context_of("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
    >>> context_of("00-00000000000000000000000000000000-00f067aa0ba902b7-01")
    ''
    """
    match = _CONTEXT.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or (match[1] == "00" and match[4]):
        return ""
    return f"00-{match[2]}-{int(match[3], 16) & _FLAGS:02x}"


def context_in(headers: Iterable[tuple[str, bytes]]) -> str:
    """The trace context among the headers of a record; empty if there is none."""
    for name, value in headers:
        if name == HEADER:
            return context_of(value.decode("ascii", "replace"))
    return ""


def trace_id(context: str) -> str:
    """The id of the trace that a context belongs to."""
    return context[3:35]


def exemplar(context: str) -> dict[str, str] | None:
    """What a histogram keeps beside an observation; None without a context."""
    return {"trace_id": trace_id(context)} if context else None


def start(service: str) -> None:
    """Send spans from now on, if the environment says where to (OpenTelemetry's own variables).

    Parameters
    ----------
    service
        What the process is called, unless OTEL_SERVICE_NAME says otherwise.
    """
    global _tracer
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        log.warning("spans_not_sent", reason=str(error), hint="pip install 'omdml[otel]', or unset " + ENDPOINTS[0])
        return
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    logger.addHandler(_ToOurLog())
    attributes = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(attributes))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _tracer = provider.get_tracer("omdml")


@contextmanager
def span(name: str, parent: str, **attributes: str | int) -> Iterator[str]:
    """A span around what is inside; gives the context to hand on, which is the parent's if no spans are sent."""
    if _tracer is None:
        yield parent
        return
    from opentelemetry.trace import set_span_in_context

    new_span = _tracer.start_span(name, _parent(parent), attributes=attributes)
    try:
        yield _header_of(set_span_in_context(new_span))
    finally:
        new_span.end()


def record_stage(name: str, parent: str, begun_at: float, ended_at: float, **attributes: str | int) -> str:
    """Send a span of a stage that is over, with times in seconds since the epoch.

    Returns the context to hand on, as :func:`span` gives it.
    """
    if _tracer is None or not parent:
        return parent
    from opentelemetry.trace import set_span_in_context

    new_span = _tracer.start_span(name, _parent(parent), attributes=attributes, start_time=int(begun_at * 1e9))
    new_span.end(int(ended_at * 1e9))
    return _header_of(set_span_in_context(new_span))


class _ToOurLog(logging.Handler):
    """Brings what OpenTelemetry says into our log: a collector that is away is no fault of this process."""

    def emit(self, record: logging.LogRecord) -> None:
        log.warning("spans_not_sent", reason=record.getMessage())


def _parent(context: str) -> Context | None:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({HEADER: context}) if context else None


def _header_of(context: Context) -> str:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, context)
    return carrier[HEADER]
