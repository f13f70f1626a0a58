"""Experiments over HTTP: searches that two rankings answer together, clicks on them, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated

import msgspec
import structlog
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from omdml.errors import OmdmlError
from omdml.workers.configuration.access import Access
from omdml.workers.node.experiments.experiments import Experiment, Experiments, Sides
from omdml.workers.node.http.middleware.request_id import HEADER
from omdml.workers.node.http.problems import reply
from omdml.workers.node.http.requests import Search, body_of, struct_of_body
from omdml.workers.node.node import RetrievalNode
from omdml.workers.node.searching.answers import Answer, Answers, single
from omdml.workers.node.searching.options import SearchError
from omdml.workers.node.view import View

MAX_CLICKS, MAX_CLICKS_BYTES = 1000, 1 << 18

log = structlog.get_logger(__name__)


class Clicks(msgspec.Struct, frozen=True, kw_only=True):
    """``POST /clicks``: items that were clicked in an interleaved answer, 1 to 1,000."""

    search: str
    ids: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_CLICKS)]


class Clicked(msgspec.Struct, frozen=True):
    """The answer to ``POST /clicks``: how many clicks counted."""

    counted: int


class ExperimentEndpoints:
    """Endpoints over the experiments of a node."""

    def __init__(self, node: RetrievalNode, access: Access, experiments: Experiments) -> None:
        self._node, self._access, self._experiments = node, access, experiments

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/experiments", self.outcomes, methods=["GET"]),
            Route("/clicks", self.clicks, methods=["POST"]),
        ]

    async def answer(
        self, view: View, asked: Search, request: Request, answers_of: Callable[[View, Search], Answers]
    ) -> Answer | None:
        """The interleaved answer to a search; None if the model alone is to answer it.

        The model alone answers a search that has several queries, or names a version, a task or a way to compare sets
        (``by``), because such searches do not come from visitors.
        """
        if not self._experiments.all or asked.version is not None or asked.queries or asked.task or asked.by:
            return None
        session = asked.session or request.scope[HEADER]
        experiment = self._experiments.of(view.snapshot.model, session)
        if experiment is None:
            return None
        return await run_in_threadpool(self._mixed, experiment, view, asked, session, answers_of)

    def _mixed(
        self,
        experiment: Experiment,
        view: View,
        asked: Search,
        session: str,
        answers_of: Callable[[View, Search], Answers],
    ) -> Answer | None:
        # Items of earlier pages were drafted before those of this one.
        from_first = msgspec.structs.replace(asked, k=asked.k + asked.offset, offset=0)
        own = single(answers_of(view, from_first))
        try:
            other = single(answers_of(self._other_view(experiment), from_first))
        except OmdmlError as error:
            experiment.tally.failed()
            log.debug("not_interleaved", experiment=experiment.name, error=str(error))
            return None
        query = msgspec.json.encode((asked.id, asked.ids, asked.features, asked.filter))
        return experiment.mixed(session, query, Sides(own, other), asked.k, asked.offset)

    def _other_view(self, experiment: Experiment) -> View:
        config = experiment.config
        if config.against_version is None:
            return self._node.view(config.against)
        return self._node.view_of(config.model, config.against_version)

    async def clicks(self, request: Request) -> Response:
        """Count clicks on an interleaved answer."""
        self._access.check(request.headers)
        clicks = struct_of_body(await body_of(request, MAX_CLICKS_BYTES), Clicks)
        experiment = self._experiments.of_search(clicks.search)
        counted = experiment.tally.clicked(clicks.search, clicks.ids) if experiment else None
        if experiment is None or counted is None:
            message = f"this node has not interleaved the search {clicks.search!r} lately, or was restarted since then"
            raise SearchError(message, "unknown_search")
        await run_in_threadpool(experiment.tally.write_if_due)
        return reply(Clicked(counted), HTTPStatus.ACCEPTED)

    async def outcomes(self, request: Request) -> Response:
        """The result of each experiment so far."""
        return reply({"experiments": [experiment.outcome for experiment in self._experiments.all.values()]})
