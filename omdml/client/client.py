"""What a program asks of a node."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlencode

import msgspec

from omdml.client.answers import (
    Answer,
    Answers,
    Changed,
    Clicked,
    Comparison,
    Experiment,
    Experiments,
    Line,
    Live,
    Pointer,
)
from omdml.client.requests import JSON_LINES, Requests
from omdml.errors import ParameterError
from omdml.feedback import ONLY_TASK, AnyFeedback, Page, Pair, Ranking, Triplet, encode

T = TypeVar("T")
# A modality to its numbers: a list, or an array of numpy.
Vectors = Mapping[str, Iterable[float]]
# Changes and bytes of one request: the node takes more, but whoever waits wants an answer in time.
BATCH, BATCH_BYTES = 1000, 4 << 20


class Options(TypedDict, total=False):
    """What a search may ask for beside its query.

    Parameters
    ----------
    offset
        How many items to pass over, for the pages after the first.
    exclude
        Ids that are never answered.
    filter, fields
        Which items may be answered, and which of their attributes come with them (deploy/SEARCH.md).
    expand
        How many of the nearest items a second search starts from too; 0 for one search. By default as the node says.
    explain
        Whether each item tells the ``parts`` of its distance.
    task
        In whose sense, if the model has tasks.
    version
        A kept version that answers instead of the live one, to compare before and after.
    min_version
        The version that has to answer, at least. The client asks for it until ``retry_s`` are over, then it raises
        :class:`~omdml.client.errors.Behind`.
    session
        Whose search this is, for experiments: all searches of a session are part of one, or none is.
    model
        Instead of the client's.
    """

    offset: int
    exclude: Sequence[str]
    filter: Mapping[str, Any] | None
    fields: Sequence[str]
    expand: int | None
    explain: bool
    task: str | None
    version: int | None
    min_version: int | None
    session: str | None
    model: str | None


class Client:
    """Asks one node, or a balancer before several. Any number of threads may use one client.

    Each attempt ends in ``timeout_s``. What failed for a moment (no connection, an answer 503) is tried again with
    growing pauses, or after what the node's ``Retry-After`` says, until ``retry_s`` are over. That never teaches twice:
    each event gets an ``id``.

    Parameters
    ----------
    url
        ``http://localhost:8080`` or ``https://host``, and perhaps a path that a proxy puts before the node's own.
    token
        The node's, if it has one: for feedback and for moves.
    model
        Which model is meant if a call names none.
    timeout_s
        Seconds for each attempt.
    retry_s
        Seconds after which no further attempt begins; 0 for one attempt.
    tls
        For https: what to trust; by default what the system trusts.

    Raises
    ------
    ParameterError
        A URL that is none; a call that names no model if the client has none, and the node needs one.
    ClientError
        From every call: :class:`~omdml.client.errors.Unreachable`, or a :class:`~omdml.client.errors.Refused`.
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
            An id, or a list of them; None with ``features`` alone.
        features
            Raw vectors of some or all modalities, one each. Beside ids they ask for the mean of the items and of these.
        text
            Words, by the text column of the catalogue that they are looked up in (deploy/PICTURES.md).
        picture
            The bytes of a JPEG, PNG, WebP or GIF file, at most 6 MiB.
        options
            :class:`Options`.
        """
        return self._search(Answer, k, options, asking(query, features, text, picture))

    def search_each(
        self, queries: Sequence[str | Sequence[str] | Vectors], k: int = 10, **options: Unpack[Options]
    ) -> list[Answer]:
        """The answers to several queries, at most 100, in their order and all under one version.

        Each is an id, a list of ids, or raw vectors, a modality each.
        """
        each = [asking(None, one) if isinstance(one, Mapping) else asking(one) for one in queries]
        found = self._search(Answers, k, options, {"queries": each})
        told = found.model, found.version, found.serial, found.took_s
        return [Answer(*told, items, found.parent, found.parent_version) for items in found.answers]

    def _search(self, kind: type[T], k: int, options: Options, query: Mapping[str, Any]) -> T:
        asked: dict[str, Any] = {"model": self.model, **options, "k": k, **query}
        given = {name: value for name, value in asked.items() if value is not None}
        return self._requests.post("/search", kind, given)

    def compare(
        self, item: str, before: int, after: int | None = None, k: int = 10, *, model: str | None = None
    ) -> Comparison:
        """What moved in the answer to an item between a kept version and another one, or the live one."""
        asked: dict[str, str | int] = {"id": item, "before": before, "k": k}
        if after is not None:
            asked["after"] = after
        return self._requests.get(f"{self._path(model)}/compare", Comparison, **asked)

    def put_item(
        self,
        item: str,
        features: Vectors | None = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        model: str | None = None,
    ) -> Changed:
        """Put an item, in the place of one of this id, with raw vectors of all modalities; or give it other attributes.

        The node answers when that is durable, and it answers searches with it.
        """
        change: dict[str, Any] = {"id": item}
        if features is not None:
            change["features"] = numbers(features)
        if attributes is not None:
            change["attributes"] = dict(attributes)
        return self.change_items([change], model=model)

    def delete_item(self, item: str, *, model: str | None = None) -> Changed:
        """Delete an item: the node does not answer it any more. One that is not there is told as ``unknown``."""
        return self.change_items([{"id": item, "delete": True}], model=model)

    def change_items(self, changes: Iterable[Mapping[str, Any]], *, model: str | None = None) -> Changed:
        """Make any number of changes, each ``{"id": ..., "features": ..., "attributes": ...}`` or ``{"id": ...,
        "delete": True}``, in their order; what became of all of them.

        They go in requests of at most 1,000 changes, each of which is made whole or not at all. To make changes again
        does no harm, so after an error the same ones may be sent again from their beginning.
        """
        name = model or self.model
        path = f"/items?{urlencode({'model': name})}" if name else "/items"
        total = Changed(name or "", 0, 0, 0, 0, [])
        for lines in batches(map(line, changes)):
            made = self._requests.send("POST", path, Changed, b"\n".join(lines), content_type=JSON_LINES)
            total = total.then(made)
        return total

    def feedback(self, *events: AnyFeedback) -> int:
        """Send up to 10,000 events, all or none; answers how many were taken when they are durable.

        An event without an ``id`` gets one. Whoever catches an error and sends the same events again gives them ids
        of their own, so that a model learns each once.
        """
        lines = [encode(event if event.id else msgspec.structs.replace(event, id=_new_id())) for event in events]
        if not lines:
            return 0
        return self._requests.send("POST", "/feedback", Accepted, b"\n".join(lines), content_type=JSON_LINES).accepted

    def clicked(self, answer: Answer, *items: str) -> int:
        """Count clicks on items of an answer for its experiment; 0 if it is part of none. This teaches nothing.

        Send it to the node that gave the answer. Raises NotFound if that node remembers it no more.
        """
        if answer.interleaved is None or not items:
            return 0
        body = {"search": answer.interleaved.search, "ids": items}
        return self._requests.post("/clicks", Clicked, body).counted

    def experiments(self) -> list[Experiment]:
        """What came of the experiments of this node."""
        return self._requests.get("/experiments", Experiments).experiments

    def triplet(
        self, query: str, relevant: str, irrelevant: str, *, user: str | None = None, model: str | None = None
    ) -> int:
        """``relevant`` is more like ``query`` than ``irrelevant`` is. ``user`` says whose click it is."""
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
        """Each of ``relevant`` is more like ``query`` than each of ``irrelevant`` is."""
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
        """A page of results: what was ``shown``, from the top, and what was ``clicked``.

        ``positions`` are the ranks of the shown items, one each, if they are not in that order. Pages without a click,
        or on which everything was clicked, say nothing and are refused.
        """
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
        """``left`` and ``right`` are similar, or not, in the sense of a task if the model has tasks."""
        name = self._named(model)
        return self.feedback(Pair(model=name, user=user, left=left, right=right, similar=similar, task=task))

    def models(self, since: float = 0.0) -> list[Live]:
        """What the node answers with, model by model; freshness is that of what went live after ``since``."""
        return self._requests.get("/models", Models, since=repr(since)).models

    def history(self, model: str | None = None, *, last: int = 100) -> list[Line]:
        """The newest moves of what answers, oldest first."""
        return self._requests.get(f"{self._path(model)}/history", History, last=last).lines

    def rollback(self, version: int | None = None, *, reason: str = "", model: str | None = None) -> Pointer:
        """Have an older version answer, by default the one before, and keep it so until :meth:`unpin`.

        The history tells the ``reason``.
        """
        return self._move("rollback", model, version, reason)

    def pin(self, version: int | None = None, *, reason: str = "", model: str | None = None) -> Pointer:
        """Have this version answer, by default the live one, whatever is learned, until :meth:`unpin`."""
        return self._move("pin", model, version, reason)

    def unpin(self, *, reason: str = "", model: str | None = None) -> Pointer:
        """Have the newest version answer again, and follow what is learned."""
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
        content: dict[str, Any] = {"reason": reason} if reason else {}
        if version is not None:
            content["version"] = version
        # A second rollback to "the one before" would go back once more.
        repeatable = verb != "rollback" or version is not None
        return self._requests.post(f"{self._path(model)}/{verb}", Pointer, content, repeatable=repeatable)

    def _path(self, model: str | None) -> str:
        return f"/models/{quote(self._named(model), safe='')}"

    def _named(self, model: str | None) -> str:
        name = model or self.model
        if name is None:
            raise ParameterError("which model? Name it: Client(url, model=NAME), or model=NAME in the call")
        return name


def asking(
    query: str | Sequence[str] | None,
    features: Vectors | None = None,
    text: Mapping[str, str] | None = None,
    picture: bytes | None = None,
) -> dict[str, Any]:
    """A query as the node takes it."""
    asked: dict[str, Any] = {}
    if query is not None:
        asked |= {"id": query} if isinstance(query, str) else {"ids": list(query)}
    if features is not None:
        asked["features"] = numbers(features)
    if text is not None:
        asked["text"] = dict(text)
    if picture is not None:
        asked["picture"] = base64.b64encode(picture).decode()
    return asked


def numbers(features: Vectors) -> dict[str, list[float]]:
    """Vectors as lists."""
    return {name: [float(x) for x in vector] for name, vector in features.items()}


def line(change: Mapping[str, Any]) -> bytes:
    """A change as a line of JSON; its vectors may be arrays."""
    if change.get("features") is None:
        return msgspec.json.encode(change)
    return msgspec.json.encode({**change, "features": numbers(change["features"])})


def batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The lines of one request after the other."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and (len(batch) == BATCH or size + len(line) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line) + 1
    if batch:
        yield batch


class Accepted(msgspec.Struct, frozen=True):
    """The answer of ``POST /feedback``."""

    accepted: int


class Models(msgspec.Struct, frozen=True):
    """The answer of ``GET /models``."""

    models: list[Live]


class History(msgspec.Struct, frozen=True):
    """The answer of ``GET /models/{model}/history``."""

    lines: list[Line]


def _new_id() -> str:
    return os.urandom(16).hex()
