"""What operators ask a node for beside searches: the health of the whole installation, and its dead letters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import structlog
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from omdml.errors import OmdmlError
from omdml.workers.configuration.access import Access
from omdml.workers.node.http.body_limits import MAX_MOVE_BYTES
from omdml.workers.node.http.requests import body_of, parameters_as, struct_of_body
from omdml.workers.node.searching.options import SearchError

# Seconds for which an answer about health is given again: looking costs the log and the store, too.
HEALTH_KEPT_S = 10.0
# Positions of one request.
MAX_SETTLED = 1000
MAX_SETTLED_BYTES = 64 * MAX_SETTLED
MAX_LETTERS = 1000

log = structlog.get_logger(__name__)


class Letters(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /letters``: the newest dead letters, or the newest of a reason, of a model, of those that are open."""

    reason: str | None = None
    model: str | None = None
    open: bool = False
    last: Annotated[int, msgspec.Meta(ge=1, le=MAX_LETTERS)] = 100


class LetterAt(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /letters/explain``: the letter at ``[TOPIC-ID/]PARTITION/OFFSET``."""

    position: str


class Settle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST /letters/resend`` and ``/letters/dismiss``: the letters at these positions, 1 to 1,000."""

    positions: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_SETTLED)]
    reason: Annotated[str, msgspec.Meta(max_length=200)] = ""


class NotHere(OmdmlError):
    """This node was started without what answers operators."""

    reason = "not_here"


class OperatorEndpoints:
    """Endpoints for operators. All of them need the role ``operator`` if the node has tokens.

    Parameters
    ----------
    office
        Does a job by name and answers JSON; it may take seconds. None if there is none.
    """

    def __init__(self, access: Access, office: Callable[..., bytes] | None) -> None:
        self._access, self._office = access, office
        self._looking = asyncio.Lock()
        self._health, self._looked_at = b"", -HEALTH_KEPT_S

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/status", self.status, methods=["GET"]),
            Route("/letters", self.letters, methods=["GET"]),
            Route("/letters/explain", self.explain, methods=["GET"]),
            Route("/letters/resend", self.resend, methods=["POST"]),
            Route("/letters/dismiss", self.dismiss, methods=["POST"]),
        ]

    async def status(self, request: Request) -> Response:
        """What ``omdml status`` shows and ``omdml doctor`` finds, at most ten seconds old."""
        self._access.check(request.headers, "operator")
        # All who ask meanwhile wait for the same look.
        async with self._looking:
            if time.monotonic() - self._looked_at >= HEALTH_KEPT_S:
                self._health = await self._job("health")
                self._looked_at = time.monotonic()
        return json_reply(self._health)

    async def letters(self, request: Request) -> Response:
        """``GET /letters``: the newest dead letters."""
        self._access.check(request.headers, "operator")
        asked = parameters_as(Letters, request.query_params)
        return json_reply(
            await self._job("letters", reason=asked.reason, model=asked.model, still_open=asked.open, last=asked.last)
        )

    async def explain(self, request: Request) -> Response:
        """All that is known of one letter, and whether its event would be learned now."""
        self._access.check(request.headers, "operator")
        return json_reply(await self._job("explain", wanted=parameters_as(LetterAt, request.query_params).position))

    async def resend(self, request: Request) -> Response:
        """Send the events of letters again, as far as they would be learned now."""
        return await self._settle(request, "resend")

    async def dismiss(self, request: Request) -> Response:
        """Settle letters although their events are not sent again."""
        return await self._settle(request, "dismiss")

    async def _settle(self, request: Request, job: str) -> Response:
        actor = self._access.check(request.headers, "operator")
        asked = struct_of_body(await body_of(request, max(MAX_SETTLED_BYTES, MAX_MOVE_BYTES)), Settle)
        answer = await self._job(job, wanted=asked.positions)
        log.info("letters_settled", how=job, positions=len(asked.positions), actor=actor, reason=asked.reason)
        self._looked_at = -HEALTH_KEPT_S
        return json_reply(answer)

    async def _job(self, job: str, **arguments: Any) -> bytes:
        if self._office is None:
            raise NotHere("this node was not started by omdml node, and can answer searches only")
        try:
            return await run_in_threadpool(self._office, job, **arguments)
        except OmdmlError as error:
            if error.reason == "invalid":
                raise SearchError(str(error), "no_letter") from error
            raise


def json_reply(content: bytes) -> Response:
    """A response that is JSON already."""
    return Response(content, media_type="application/json", headers={"cache-control": "no-store"})
