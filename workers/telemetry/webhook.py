"""Posts log lines that need an operator to a URL, from a thread of its own, so that learning never waits for it."""

from __future__ import annotations

import json
import queue
import threading
import time
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from types import TracebackType
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from omdml.workers.telemetry import log_events
from omdml.workers.telemetry.registry import Families

# Lines of the log that are posted, and the ``kind`` of each in its message.
KINDS = {
    "snapshot_withheld": "withheld",
    "drift": "drift",
    "snapshot_taken_back": "rollback",
    "model_waits": "waiting",
}
# At most this many messages wait to be sent.
MOST = 1000
# Seconds between two lines of the log about failures.
FAILURE_EVERY_S = 60.0
OUTCOMES = ("sent", "failed", "dropped")
log = structlog.get_logger(__name__)


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for a failure: it would be followed by a GET without the message, which then counted as sent."""

    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect."""


class Webhook:
    """Posts lines of the log to a URL until its block ends. Then it sends what waits, for at most ``timeout_s``.

    A request is tried once. What does not fit into the queue is dropped and counted.

    Parameters
    ----------
    url
        An http or https address; empty: nothing is sent.
    timeout_s
        Seconds that the server may be silent for.
    """

    def __init__(self, url: str, timeout_s: float, registry: CollectorRegistry) -> None:
        self.url, self.timeout_s = url, timeout_s
        new = Families("omdml_worker", registry)
        self._count = new.counter("webhook_requests_total", "Messages for the webhook, by outcome", outcome=OUTCOMES)
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(MOST)
        self._failure_logged_at = -FAILURE_EVERY_S
        self._opener = urllib.request.build_opener(NoRedirects)
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    def __enter__(self) -> Webhook:
        if self.url:
            self._thread.start()
            log_events.listener = self._hear
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.url:
            log_events.listener = None
            try:
                self._waiting.put_nowait(None)
            except queue.Full:
                # The server hangs: the process ends without it.
                return
            self._thread.join(self.timeout_s)

    def _hear(self, line: Mapping[str, Any]) -> None:
        """Receive a log line, in any thread."""
        if line["event"] in KINDS:
            body = {"kind": KINDS[line["event"]], "time": time.time(), **line}
            try:
                self._waiting.put_nowait(body)
            except queue.Full:
                self._count.labels("dropped").inc()

    def _run(self) -> None:
        while (body := self._waiting.get()) is not None:
            try:
                self._post(json.dumps(body, default=str).encode())
            except (OSError, ValueError, HTTPException) as error:
                self._count.labels("failed").inc()
                self._tell(str(error))
            else:
                self._count.labels("sent").inc()

    def _post(self, body: bytes) -> None:
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"}, method="POST")
        with self._opener.open(request, timeout=self.timeout_s):
            # Nobody needs the answer's body. A status of 300 or above was raised as an error.
            pass

    def _tell(self, reason: str) -> None:
        """Log that a request failed, but not each time."""
        now = time.monotonic()
        if now - self._failure_logged_at >= FAILURE_EVERY_S:
            self._failure_logged_at = now
            log.warning("webhook_failed", reason=reason, action="this message is not sent again")
