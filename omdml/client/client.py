"""The client: one method for each request that a program sends to a node."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, Unpack
from urllib.parse import quote, urlencode

import msgspec

from omdml.client.answers import (
    Accepted,
    Answer,
    Answers,
    Changed,
    Clicked,
    Comparison,
    Experiment,
    Experiments,
    History,
    Line,
    Listed,
    ListedItem,
    Listing,
    Live,
    Models,
    Pointer,
)
from omdml.client.bodies import Vectors, batches, line, numbers, query_body
from omdml.client.options import Options
from omdml.client.requests import JSON_LINES, Requests
from omdml.errors import ParameterError
from omdml.feedback import ONLY_TASK, AnyFeedback, Feedback, Page, Pair, Ranking, Triplet, encode

T = TypeVar("T")


class Client:
    """A client of one node, or of a load balancer in front of several. Any number of threads may share a client.

    Each attempt ends after ``timeout_s`` seconds at the latest. Temporary failures (no connection; an answer 429, 502,
    503 or 504) are retried with growing pauses, or after the node's ``Retry-After``, until ``retry_s`` seconds are
    over. Retries never teach an event twice, because each event gets an ``id``. A rollback without a version is sent
    again only if no node can have seen it.

    Parameters
    ----------
    url
        ``http://localhost:8080`` or ``https://host``, with a path if a proxy serves the node below one.
    token
        Token of the node, if it needs one.
    model
        Name of the model for calls that name none.
    timeout_s
        Seconds for each attempt.
    retry_s
        Seconds after which no further attempt begins; 0 for a single attempt.
    tls
        For https: which certificates to trust; by default those that the system trusts.

    Raises
    ------
    ParameterError
        ``url`` is not a URL, ``timeout_s`` or ``retry_s`` is out of range, an argument of a call has the wrong type, or
        neither the call nor the client names a model and the request needs one.
    ClientError
        From every call: :class:`~omdml.client.errors.Unreachable`, :class:`~omdml.client.errors.Refused`, or
        ClientError itself if the answer is not that of a node.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        model: str | None = None,
        timeout_s: float = 5.0,
        retry_s: float = 15.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.model = model
        self._requests = Requests(url, token, timeout_s, retry_s, tls)

    def search(
        self,
        query: str | Sequence[str] | None = None,
        k: int = 10,
        *,
        features: Vectors | None = None,
        text: Mapping[str, str] | None = None,
        picture: bytes | None = None,
        **options: Unpack[Options],
    ) -> Answer:
        """The ``k`` items closest to an item, to the mean of several, to raw vectors, to words, or to a picture.

        Parameters
        ----------
        query
            An id, or a list of them. None if ``features``, ``text`` or ``picture`` alone say what to search for.
        features
            Raw vectors (d_i,) by modality, lists or arrays, of some or all modalities, in the units that the catalogue
            was built from. Together with ids: the search is for the mean of the items and these vectors.
        text
            Words by column of text, such as ``{"title": "red shirt"}``. They stand for the vectors that the catalogue
            makes of them (deploy/PICTURES.md).
        picture
            The bytes of a JPEG, PNG, WebP or GIF file, at most 6 MiB. They stand for the vectors that the catalogue
            makes of it.
        options
            See :class:`Options`.
        """
        return self._search(Answer, k, options, query_body(query, features, text, picture))

    def search_each(
        self, queries: Sequence[str | Sequence[str] | Vectors], k: int = 10, **options: Unpack[Options]
    ) -> list[Answer]:
        """The answers to several queries, at most 100, in their order and all under one version.

        Each query is an id, a list of ids, or raw vectors by modality.
        """
        bodies = [query_body(None, query) if isinstance(query, Mapping) else query_body(query) for query in queries]
        reply = self._search(Answers, k, options, {"queries": bodies})
        fields_before = reply.model, reply.version, reply.serial, reply.took_s
        fields_after = reply.parent, reply.parent_version, reply.candidates_version
        return [Answer(*fields_before, items, *fields_after) for items in reply.answers]

    def _search(self, kind: type[T], k: int, options: Options, query: Mapping[str, Any]) -> T:
        fields: dict[str, Any] = {"model": self.model, **options, "k": k, **query}
        body = {name: value for name, value in fields.items() if value is not None}
        return self._requests.post("/search", kind, body)

    def compare(
        self,
        item: str,
        before: int,
        after: int | None = None,
        k: int = 10,
        *,
        task: str | None = None,
        expand: int | None = None,
        model: str | None = None,
    ) -> Comparison:
        """The differences between the answers of two versions to an item, in the first ``k`` (1 to 1,000) of each.

        ``before`` is a version that the store still keeps; so is ``after``, which is the live one by default. ``task``
        and ``expand`` are those of a search (:class:`Options`).
        """
        parameters: dict[str, str | int | None] = {
            "id": item,
            "before": before,
            "after": after,
            "k": k,
            "task": task,
            "expand": expand,
        }
        given = {name: value for name, value in parameters.items() if value is not None}
        return self._requests.get(f"{self._path(model)}/compare", Comparison, **given)

    def item(self, item: str, *, fields: Sequence[str] = (), model: str | None = None) -> ListedItem | None:
        """An item with its attributes: those that ``fields`` names, or all. None if the node has no such item."""
        return next(iter(self._listed({"id": item, "fields": ",".join(fields)}, model).items), None)

    def items(
        self, find: str = "", *, fields: Sequence[str] = (), offset: int = 0, limit: int = 100, model: str | None = None
    ) -> Listed:
        """Items in the catalogue's order, ``limit`` (1 to 1,000) of them after the first ``offset``.

        With ``find``, only items whose id or label holds this text. ``fields`` names the attributes to return.
        """
        parameters: dict[str, str | int] = {
            "find": find,
            "fields": ",".join(fields),
            "offset": offset,
            "limit": limit,
        }
        return self._listed(parameters, model)

    def _listed(self, parameters: Mapping[str, str | int], model: str | None) -> Listed:
        name = model or self.model
        return self._requests.get("/items", Listing, **parameters, **({"model": name} if name else {})).listed

    def put_item(
        self,
        item: str,
        features: Vectors | None = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        model: str | None = None,
    ) -> Changed:
        """Add or replace an item with raw vectors, or give an existing item other attributes.

        The node answers when the change is durable and visible in its own searches.
        """
        change: dict[str, Any] = {"id": item}
        if features is not None:
            change["features"] = numbers(features)
        if attributes is not None:
            change["attributes"] = dict(attributes)
        return self.change_items([change], model=model)

    def delete_item(self, item: str, *, model: str | None = None) -> Changed:
        """Delete an item, so that it is in no answer any more. An id that does not exist is returned in ``unknown``."""
        return self.change_items([{"id": item, "delete": True}], model=model)

    def change_items(self, changes: Iterable[Mapping[str, Any]], *, model: str | None = None) -> Changed:
        """Make any number of changes in order, and return their combined result.

        Each change is ``{"id": ..., "features": ..., "attributes": ...}`` or ``{"id": ..., "delete": True}``. If the
        catalogue was built from texts and pictures, ``"text"`` and ``"picture"`` (bytes) can stand for features.
        Changes are sent in requests of at most 1,000, and each request is carried out completely or not at all.
        Repeating changes does no harm, so after an error all of them may be sent again.
        """
        name = model or self.model
        path = f"/items?{urlencode({'model': name})}" if name else "/items"
        total = Changed(name or "", 0, 0, 0, 0, [])
        for lines in batches(map(line, changes)):
            changed = self._requests.send("POST", path, Changed, b"\n".join(lines), content_type=JSON_LINES)
            total = total.then(changed)
        return total

    def feedback(self, *events: AnyFeedback) -> int:
        """Send up to 10,000 events, all or none, and return their number once they are durable.

        An event without an ``id`` gets one. If you catch an error and send the same events again, give them ids
        yourself, so that a model learns each event once. If events are invalid, BadRequest is raised, and none of them
        is taken: the error's ``answer["errors"]`` lists the first bad ones.
        """
        for event in events:
            if isinstance(event, list | tuple):
                raise ParameterError(
                    f"an event is a {type(event).__name__}: pass its events one by one: feedback(*events)"
                )
            if not isinstance(event, Feedback):
                raise ParameterError(
                    f"an event is {event!r:.80}, expected an object of omdml.client, such as Triplet(model=..., "
                    "query=..., relevant=..., irrelevant=...), or call triplet(), ranking(), page() or pair()"
                )
        lines = [encode(event if event.id else msgspec.structs.replace(event, id=_new_id())) for event in events]
        if not lines:
            return 0
        return self._requests.send("POST", "/feedback", Accepted, b"\n".join(lines), content_type=JSON_LINES).accepted

    def clicked(self, answer: Answer, *items: str) -> int:
        """Count clicks on items of an answer for its experiment, and return how many were counted. Nothing is learned.

        The result is 0 if the answer is not part of an experiment. Send clicks to the node that gave the answer. Raises
        NotFound if that node no longer remembers it.
        """
        if answer.interleaved is None or not items:
            return 0
        body = {"search": answer.interleaved.search, "ids": items}
        return self._requests.post("/clicks", Clicked, body).counted

    def experiments(self) -> list[Experiment]:
        """The results of the experiments of this node."""
        return self._requests.get("/experiments", Experiments).experiments

    def triplet(
        self, query: str, relevant: str, irrelevant: str, *, user: str | None = None, model: str | None = None
    ) -> int:
        """Send a triplet: ``relevant`` is more like ``query`` than ``irrelevant`` is. ``user`` says who clicked."""
        name = self._named(model)
        return self.feedback(Triplet(model=name, user=user, query=query, relevant=relevant, irrelevant=irrelevant))

    def ranking(
        self,
        query: str,
        relevant: Sequence[str],
        irrelevant: Sequence[str],
        *,
        user: str | None = None,
        model: str | None = None,
    ) -> int:
        """Send a ranking: each item of ``relevant`` is more like ``query`` than each item of ``irrelevant``."""
        name, near, far = self._named(model), tuple(relevant), tuple(irrelevant)
        return self.feedback(Ranking(model=name, user=user, query=query, relevant=near, irrelevant=far))

    def page(
        self,
        query: str,
        shown: Sequence[str],
        clicked: Sequence[str],
        *,
        positions: Sequence[int] | None = None,
        user: str | None = None,
        model: str | None = None,
    ) -> int:
        """Send a page of results: the items that were ``shown``, from the top, and those that were ``clicked``.

        If ``shown`` is not in that order, ``positions`` has the rank of each shown item, from 1. A page without a
        click, or on which everything was clicked, says nothing. It is not sent, and the result is 0.
        """
        clicks = set(clicked) - {query}
        if not clicks or clicks >= set(shown) - {query}:
            return 0
        page = Page(
            model=self._named(model),
            user=user,
            query=query,
            shown=tuple(shown),
            clicked=tuple(clicked),
            positions=None if positions is None else tuple(positions),
        )
        return self.feedback(page)

    def pair(
        self,
        left: str,
        right: str,
        similar: bool,
        *,
        task: str = ONLY_TASK,
        user: str | None = None,
        model: str | None = None,
    ) -> int:
        """Send a pair: ``left`` and ``right`` are similar or not, in the sense of ``task`` if the model has tasks."""
        name = self._named(model)
        return self.feedback(Pair(model=name, user=user, left=left, right=right, similar=similar, task=task))

    def models(self, since: float = 0.0) -> list[Live]:
        """The live version of each model.

        Freshness covers versions that went live after ``since``, in seconds since the epoch.
        """
        return self._requests.get("/models", Models, since=repr(since)).models

    def patterns(self) -> list[str]:
        """The patterns of names: the node also answers for models whose names match one of them."""
        return self._requests.get("/models", Models).patterns

    def history(self, model: str | None = None, *, last: int = 100) -> list[Line]:
        """The newest lines of the model's history, at most ``last`` (1 to 10,000), oldest first."""
        return self._requests.get(f"{self._path(model)}/history", History, last=last).lines

    def rollback(self, version: int | None = None, *, reason: str = "", model: str | None = None) -> Pointer:
        """Make an older version live, by default the one before, and pin it until :meth:`unpin`.

        ``reason`` is recorded in the history.
        """
        return self._move("rollback", model, version, reason)

    def pin(self, version: int | None = None, *, reason: str = "", model: str | None = None) -> Pointer:
        """Make this version live, by default the current one, whatever is learned, until :meth:`unpin`."""
        return self._move("pin", model, version, reason)

    def unpin(self, *, reason: str = "", model: str | None = None) -> Pointer:
        """Make the newest version live again, and follow what is learned."""
        return self._move("unpin", model, None, reason)

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        self._requests.connections.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _move(self, verb: str, model: str | None, version: int | None, reason: str) -> Pointer:
        """Move the live pointer: ``rollback``, ``pin`` or ``unpin``."""
        content: dict[str, Any] = {"reason": reason} if reason else {}
        if version is not None:
            content["version"] = version
        # Repeating a rollback to "the one before" would go back one more version.
        repeatable = verb != "rollback" or version is not None
        return self._requests.post(f"{self._path(model)}/{verb}", Pointer, content, repeatable=repeatable)

    def _path(self, model: str | None) -> str:
        return f"/models/{quote(self._named(model), safe='')}"

    def _named(self, model: str | None) -> str:
        name = model or self.model
        if name is None:
            raise ParameterError("which model? Name it: Client(url, model=NAME), or model=NAME in the call")
        return name


def _new_id() -> str:
    return os.urandom(16).hex()
