"""Searches over HTTP: ``GET /search`` and ``POST /search``."""

from __future__ import annotations

from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from omdml.workers.node.galleries.gallery import Query
from omdml.workers.node.http import etags
from omdml.workers.node.http.body_limits import INLINE_BYTES, MAX_PICTURE_QUERY_BYTES
from omdml.workers.node.http.endpoints.experiments import ExperimentEndpoints
from omdml.workers.node.http.endpoints.items.describing import described
from omdml.workers.node.http.min_version import check_version, view_from
from omdml.workers.node.http.problems import reply
from omdml.workers.node.http.requests import Search, body_of, own_query, search_of_body, search_of_parameters
from omdml.workers.node.node import RetrievalNode
from omdml.workers.node.searching.answers import Answers, Paging, single
from omdml.workers.node.searching.options import Options, SearchError
from omdml.workers.node.searching.shared_scans import Asked, SharedScans
from omdml.workers.node.view import View

# Digits of a version's digest that are enough to tell it from another version.
DIGITS = 16


class SearchEndpoints:
    """The endpoints that search in one node."""

    def __init__(self, node: RetrievalNode, trials: ExperimentEndpoints) -> None:
        self._node, self._trials = node, trials
        self._scans = SharedScans(node)

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/search", self.search_item, methods=["GET"]),
            Route("/search", self.search, methods=["POST"]),
        ]

    async def search_item(self, request: Request) -> Response:
        """``GET /search``: the items closest to one item; 304 if the client has this answer already."""
        asked = search_of_parameters(request.query_params)
        view = await self._view(asked)
        if mixed := await self._trials.answer(view, asked, request, self._answers_of):
            check_version(view, mixed.version, asked.min_version)
            return reply(mixed)
        headers = {"etag": self._tag(view, asked), "cache-control": "no-cache"}
        if etags.has(request, headers["etag"]):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        response = await self._search(view, asked)
        if etags.has_any(request):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        response.headers.update(headers)
        return response

    async def search(self, request: Request) -> Response:
        """``POST /search``: the items closest to items, raw vectors, texts or pictures."""
        body = await body_of(request, MAX_PICTURE_QUERY_BYTES)
        asked = await run_in_threadpool(search_of_body, body) if len(body) > INLINE_BYTES else search_of_body(body)
        view = await self._view(asked)
        if any(query.brings for query in asked.queries or [own_query(asked)]):
            asked = await run_in_threadpool(described, view.catalogue, asked)
        if mixed := await self._trials.answer(view, asked, request, self._answers_of):
            check_version(view, mixed.version, asked.min_version)
            return reply(mixed)
        return await self._search(view, asked)

    async def _view(self, asked: Search) -> View:
        if asked.version is not None:
            return await run_in_threadpool(self._node.view_of, asked.model, asked.version)
        return await view_from(self._node, asked.model, asked.min_version)

    def _expand(self, view: View, asked: Search) -> int:
        return self._node.expand(view.snapshot.model) if asked.expand is None else asked.expand

    def _tag(self, view: View, asked: Search) -> str:
        """The same tag for the same request on any node, until the answer changes; ``took_s`` does not count."""
        parent = view.parent.version if view.parent else 0
        # Before its gallery is embedded, a version answers from an older one's.
        moving = view.origin.snapshot.version + 1 if view.origin else 0
        # Another state of the index may propose other candidates.
        candidates = view.two_stage.index.tag if view.two_stage else 0
        parts = (view.snapshot.version, parent, view.position, self._expand(view, asked), moving, candidates)
        # A model that was deleted counts serials and versions from the beginning again, and may have another learner.
        learned = f"{view.snapshot.learner}-{view.pointer.digest[:DIGITS]}"
        return f'W/"{view.pointer.serial}-{"-".join(map(str, parts))}-{learned}-{view.catalogue.generation}"'

    def _queries(self, view: View, asked: Search) -> list[Query]:
        """What the view is asked; raises SearchError, which says which of several queries it is about."""
        queries: list[Query] = []
        for number, query in enumerate(asked.queries or [own_query(asked)], start=1):
            try:
                queries.append(view.query(query.names, query.features, asked.by, asked.rerank))
            except SearchError as error:
                if asked.queries is None:
                    raise
                raise SearchError(f"query {number}: {error}", error.reason) from error
        return queries

    def _answers_of(self, view: View, asked: Search) -> Answers:
        return self._answers(view, self._queries(view, asked), asked)

    async def _search(self, view: View, asked: Search) -> Response:
        queries = self._queries(view, asked)
        needs_own_scan = asked.filter is not None or asked.fields or asked.by or asked.rerank
        if needs_own_scan or any(query.by_elements for query in queries):
            answers = await run_in_threadpool(self._answers, view, queries, asked)
        else:
            page, options = self._page_and_options(view, asked)
            answers = await self._scans.answers(view, queries, Asked(asked.k, asked.task, page, options))
        check_version(view, answers.version, asked.min_version)
        return reply(single(answers) if asked.queries is None else answers)

    def _page_and_options(self, view: View, asked: Search) -> tuple[Paging, Options]:
        return Paging(asked.offset, tuple(asked.exclude)), Options(self._expand(view, asked), asked.explain)

    def _answers(self, view: View, queries: list[Query], asked: Search) -> Answers:
        node = self._node
        if asked.filter is not None:
            filtered = node.attributes.filtered(view, queries[0], asked.filter)
            queries = [query._replace(among=filtered.among, pushed=filtered.pushed) for query in queries]
        answers = node.answers(view, queries, asked.k, asked.task, *self._page_and_options(view, asked))
        return node.attributes.with_fields(view, answers, asked.fields) if asked.fields else answers
