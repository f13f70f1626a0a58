"""What a program asks of a node."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import quote

import msgspec

from omdml.client.answers import Answer, Line, Live, Pointer
from omdml.client.requests import JSON_LINES, Requests
from omdml.errors import ParameterError
from omdml.feedback import ONLY_TASK, AnyFeedback, Page, Pair, Ranking, Triplet, encode

# A modality to its numbers: a list, or an array of numpy.
Vectors = Mapping[str, Iterable[float]]


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
        offset: int = 0,
        exclude: Sequence[str] = (),
        filter: Mapping[str, Any] | None = None,  # noqa: A002 # as the node calls it
        fields: Sequence[str] = (),
        task: str | None = None,
        version: int | None = None,
        min_version: int | None = None,
        model: str | None = None,
    ) -> Answer:
        """The ``k`` items closest to an item, to the mean of several, or to raw vectors, a modality each.

        Parameters
        ----------
        query
            An id, or a list of them; None with ``features``.
        offset
            How many items to pass over, for the pages after the first.
        exclude
            Ids that are never answered.
        filter, fields
            Which items may be answered, and which of their attributes come with them (deploy/SEARCH.md).
        task
            In whose sense, if the model has tasks.
        version
            A kept version that answers instead of the live one, to compare before and after.
        min_version
            The version that has to answer, at least. The client asks for it until ``retry_s`` are over, then it raises
            :class:`~omdml.client.errors.Behind`.
        """
        vectors = {name: [float(x) for x in vector] for name, vector in (features or {}).items()}
        given = {
            "id": query if isinstance(query, str) else None,
            "ids": None if query is None or isinstance(query, str) else list(query),
            "features": None if features is None else vectors,
            "exclude": list(exclude) or None,
            "filter": filter,
            "fields": list(fields) or None,
            "task": task,
            "version": version,
            "min_version": min_version,
            "model": model or self.model,
        }
        asked = {name: value for name, value in given.items() if value is not None}
        return self._requests.post("/search", Answer, {"k": k, "offset": offset, **asked})

    def feedback(self, *events: AnyFeedback) -> int:
        """Send up to 10,000 events, all or none; answers how many were taken when they are durable.

        An event without an ``id`` gets one. Whoever catches an error and sends the same events again gives them ids
        of their own, so that a model learns each once.
        """
        lines = [encode(event if event.id else msgspec.structs.replace(event, id=_new_id())) for event in events]
        if not lines:
            return 0
        return self._requests.send("POST", "/feedback", Accepted, b"\n".join(lines), content_type=JSON_LINES).accepted

    def triplet(self, query: str, relevant: str, irrelevant: str, *, model: str | None = None) -> int:
        """``relevant`` is more like ``query`` than ``irrelevant`` is."""
        name = self._named(model)
        return self.feedback(Triplet(model=name, query=query, relevant=relevant, irrelevant=irrelevant))

    def ranking(
        self, query: str, relevant: Sequence[str], irrelevant: Sequence[str], *, model: str | None = None
    ) -> int:
        """Each of ``relevant`` is more like ``query`` than each of ``irrelevant`` is."""
        name = self._named(model)
        return self.feedback(Ranking(model=name, query=query, relevant=tuple(relevant), irrelevant=tuple(irrelevant)))

    def page(
        self,
        query: str,
        shown: Sequence[str],
        clicked: Sequence[str],
        *,
        positions: Sequence[int] | None = None,
        model: str | None = None,
    ) -> int:
        """A page of results: what was ``shown``, from the top, and what was ``clicked``.

        ``positions`` are the ranks of the shown items, one each, if they are not in that order. Pages without a click,
        or on which everything was clicked, say nothing and are refused.
        """
        ranks = None if positions is None else tuple(positions)
        page = Page(model=self._named(model), query=query, shown=tuple(shown), clicked=tuple(clicked), positions=ranks)
        return self.feedback(page)

    def pair(self, left: str, right: str, similar: bool, *, task: str = ONLY_TASK, model: str | None = None) -> int:
        """``left`` and ``right`` are similar, or not, in the sense of a task if the model has tasks."""
        return self.feedback(Pair(model=self._named(model), left=left, right=right, similar=similar, task=task))

    def models(self, since: float = 0.0) -> list[Live]:
        """What the node answers with, model by model; freshness is that of what went live after ``since``."""
        return self._requests.get("/models", Models, since=repr(since)).models

    def history(self, model: str | None = None, *, last: int = 100) -> list[Line]:
        """The newest moves of what answers, oldest first."""
        return self._requests.get(f"{self._path(model)}/history", History, last=last).lines

    def rollback(self, version: int | None = None, *, model: str | None = None) -> Pointer:
        """Have an older version answer, by default the one before, and keep it so until :meth:`unpin`."""
        return self._move("rollback", model, version)

    def pin(self, version: int | None = None, *, model: str | None = None) -> Pointer:
        """Have this version answer, by default the live one, whatever is learned, until :meth:`unpin`."""
        return self._move("pin", model, version)

    def unpin(self, *, model: str | None = None) -> Pointer:
        """Have the newest version answer again, and follow what is learned."""
        return self._move("unpin", model, None)

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        self._requests.connections.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _move(self, verb: str, model: str | None, version: int | None) -> Pointer:
        content = {} if version is None else {"version": version}
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
