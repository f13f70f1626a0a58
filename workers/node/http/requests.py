"""The requests that a node takes over HTTP, how they are checked, and the errors about those that are wrong."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request

from omdml.errors import FeedbackError
from omdml.feedback import MESSAGEPACK
from omdml.messages.decoding import malformed, misfit, place_of
from omdml.messages.suggestion import suggestion
from omdml.streams.describers.pictures import MAX_SENT_BYTES, MAX_SENT_PIXELS
from omdml.workers.events.unread_fields import UnreadFields
from omdml.workers.node.http.body_limits import MAX_QUERY_BYTES
from omdml.workers.node.searching.answers import DEFAULT_K, MAX_K
from omdml.workers.node.searching.options import MAX_EXPAND, SearchError
from omdml.workers.node.writing.inbox import Event, Inbox
from omdml.workers.versions.moves import MAX_REASON

T = TypeVar("T", bound=msgspec.Struct)
MAX_QUERIES = 100
# The most events of one request.
MAX_EVENTS = 10_000
# The most errors that one answer lists.
MAX_ERRORS = 20
MinVersion = Annotated[
    Annotated[int, msgspec.Meta(ge=0)] | None,
    msgspec.Meta(
        description="The lowest version that may answer, such as the `version` of an earlier answer of any node. If "
        "a node does not have it yet, it waits two seconds for it. Then it answers 503 `behind`, with its own version. "
        "It answers 503 `behind` at once if it has that version, but an older one still answers this search because "
        "the gallery is not embedded yet.",
    ),
]
Version = Annotated[
    Annotated[int, msgspec.Meta(ge=0)] | None,
    msgspec.Meta(description="An older version, which the store still keeps, that answers instead of the live one"),
]
# Examples of fields whose type alone does not show how they look.
EXPECTED = {
    "text": ', as in {"text": {"title": "red shirt"}}, by column of text',
    "features": ', as in {"features": {"color": [0.93, 0.11]}}, by modality',
}
JSON_LINES = ("application/x-ndjson", "application/jsonl", "application/json-lines")
Expand = Annotated[
    Annotated[int, msgspec.Meta(ge=0, le=MAX_EXPAND)] | None,
    msgspec.Meta(
        description="How many of the nearest items take part in a second search, 0 to 100. It starts from the mean of "
        "the query and these items. 0: search once. Without this field the model's option `expand` decides."
    ),
]
MAX_SESSION = 200
Session = Annotated[
    Annotated[str, msgspec.Meta(max_length=MAX_SESSION)] | None,
    msgspec.Meta(
        description="An id of the visitor's session, at most 200 characters, for experiments. Either all searches of a "
        "session are answered by two mixed rankings, or no search of it is. Without it, the id of the request decides."
    ),
]
Explain = Annotated[bool, msgspec.Meta(description="true: `parts` of each item say what its distance is made of")]
Text = Annotated[
    dict[str, str] | None,
    msgspec.Meta(
        description='Words by column of text, such as `{"title": "red shirt"}`. They stand for the vectors that the '
        "catalogue makes of them."
    ),
]
PictureBytes = Annotated[
    bytes | None,
    msgspec.Meta(
        description=f"JPEG, PNG, WebP or GIF in base64, at most {MAX_SENT_BYTES >> 20} MiB and "
        f"{MAX_SENT_PIXELS // 10**6} megapixels. It stands for the vectors that the catalogue makes of it."
    ),
]


class ItemSearch(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /search``: the items closest to one item. ``model`` may be left out if there is one."""

    id: str
    model: str | None = None
    k: int = DEFAULT_K
    offset: int = 0
    task: str | None = None
    min_version: MinVersion = None
    version: Version = None
    expand: Expand = None
    explain: Explain = False
    session: Session = None


class OneQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of several queries: an item, the mean of several, raw vectors, or the mean of items and raw vectors.

    ``text`` and ``picture`` stand for raw vectors. A query has ``id`` or ``ids`` or neither, and not both.
    """

    id: str | None = None
    ids: list[str] | None = None
    features: dict[str, list[float]] | None = None
    text: Text = None
    picture: PictureBytes = None

    @property
    def brings(self) -> bool:
        """Whether there is something to describe."""
        return self.text is not None or self.picture is not None

    @property
    def names(self) -> list[str] | None:
        """Ids of the items that ask."""
        return [self.id] if self.id is not None else self.ids


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """``POST /search``: the items closest to an item, to the mean of several, to raw vectors, or to the mean of items
    and raw vectors. If the catalogue was built from texts and pictures, words and a picture can stand for raw vectors.

    ``queries`` holds several of these queries. One version answers all of them. All other fields apply to each query.
    The answer then has ``answers``, a list for each query, instead of ``items``.

    A model of sets (learner ``setnet``) takes these items as elements, and answers with the sets that hold them best.
    ``by`` and ``rerank`` are for such models only.
    """

    id: str | None = None
    ids: list[str] | None = None
    features: dict[str, list[float]] | None = None
    text: Text = None
    picture: PictureBytes = None
    model: str | None = None
    k: int = DEFAULT_K
    offset: int = 0
    exclude: list[str] = []
    filter: dict[str, Any] | None = None
    fields: list[str] = []
    task: str | None = None
    min_version: MinVersion = None
    version: Version = None
    expand: Expand = None
    explain: Explain = False
    session: Session = None
    queries: Annotated[list[OneQuery], msgspec.Meta(min_length=1, max_length=MAX_QUERIES)] | None = None
    by: Literal["vector", "aggregate", "elements"] | None = None
    rerank: int | None = None


class ModelsSince(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /models``. Freshness is that of versions that went live after ``since``, for example a ``live_since``."""

    since: float = 0.0


class Items(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /items``: a model's items whose id or label holds the text ``find``, in the catalogue's order."""

    model: str | None = None
    id: str | None = None
    fields: str = ""
    find: str = ""
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class ItemPicture(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /picture``: the picture of an item."""

    id: str
    model: str | None = None


class ItemAtlas(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /atlas``: the thumbnails of many items in one picture, the one that begins with this row."""

    first: Annotated[int, msgspec.Meta(ge=0)]
    model: str | None = None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /models/{model}/history``: this many lines, the newest."""

    last: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100


class OfVersion(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /models/{model}/inspect``: a kept version, or the live one."""

    version: Annotated[int, msgspec.Meta(ge=0)] | None = None


class Compare(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /models/{model}/compare``: what moved between a kept version and another, or the live one."""

    id: str
    before: Annotated[int, msgspec.Meta(ge=0, description="The earlier version, which the store must still keep")]
    after: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="The later version, which the store must still keep. Without it, the live one"),
    ] = None
    k: int = DEFAULT_K
    task: str | None = None
    expand: Expand = None


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /events``: those of one model, or of all."""

    model: str | None = None


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """``POST /models/{model}/rollback``, ``pin`` and ``unpin``. The body may be empty."""

    version: Annotated[int, msgspec.Meta(ge=0)] | None = None
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON)] = ""
    seen: Annotated[int, msgspec.Meta(ge=0)] | None = None


class BadEvent(msgspec.Struct, frozen=True):
    """One event that cannot be taken; ``number`` counts the request's events from 1, as ``omdml feed`` does lines."""

    number: int
    error: str
    message: str


class Checked(NamedTuple):
    """The events of a request: nothing is taken unless all of them are good."""

    events: list[Event]
    bad: list[BadEvent]
    unread: UnreadFields


def search_of_parameters(parameters: QueryParams) -> Search:
    """The query in a URL; raises SearchError."""
    if len(dict(parameters)) < len(parameters.multi_items()):
        raise SearchError("a parameter is given twice: POST /search takes several ids as a list", "invalid")
    # A newcomer adds a filter to the address of the first search.
    for name in parameters:
        if name in Search.__struct_fields__ and name not in ItemSearch.__struct_fields__:
            message = f"GET /search does not take {name!r}: send the search as JSON to POST /search, which does"
            raise SearchError(message, "unknown_parameter")
    return Search(**msgspec.structs.asdict(parameters_as(ItemSearch, parameters)))


def parameters_as(struct: type[T], parameters: QueryParams) -> T:
    """The parameters of a URL; raises SearchError."""
    return _converted(dict(parameters), struct, strict=False)


def move_of_body(body: bytes) -> Move:
    """What a move is asked for, ``{"version": 12}`` or nothing; raises SearchError."""
    return struct_of_body(body if body.strip() else b"{}", Move)


def struct_of_body(body: bytes, struct: type[T]) -> T:
    """The struct that a JSON body holds; raises SearchError."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SearchError(f"the body is not a JSON object: {malformed(error, body)}", "not_json") from error
    return _converted(fields, struct, strict=True)


def search_of_body(body: bytes) -> Search:
    """The query in a JSON body; raises SearchError."""
    # Only a picture may make a query large. This looks before it parses, so that junk costs nothing.
    if len(body) > MAX_QUERY_BYTES and b'"picture"' not in body:
        raise _oversize(len(body), MAX_QUERY_BYTES)
    asked = struct_of_body(body, Search)
    single_query = own_query(asked)
    if asked.queries is None:
        _check_query(single_query, "a query")
        return asked
    if single_query != OneQuery():
        reason = "queries stand for id, ids, features, text and picture: give one or the other"
        raise SearchError(reason, "invalid")
    if sum(query.picture is not None for query in asked.queries) > 1:
        raise SearchError("several queries bring a picture, expected at most one in a request: split them", "oversize")
    for number, query in enumerate(asked.queries, start=1):
        _check_query(query, f"query {number}")
    if (asked.k + asked.offset) * len(asked.queries) > MAX_K:
        message = (
            f"{len(asked.queries)} queries of {asked.k + asked.offset} items each (k and offset): expected at most"
        )
        raise SearchError(f"{message} {MAX_K} items together; split them", "bad_k")
    return asked


def own_query(asked: Search) -> OneQuery:
    """The query that a search is, if it has no ``queries``."""
    return OneQuery(asked.id, asked.ids, asked.features, asked.text, asked.picture)


def _check_query(query: OneQuery, what: str) -> None:
    if query.id is not None and query.ids is not None:
        raise SearchError(f"{what} has both id and ids: put all items into ids", "invalid")
    if query == OneQuery():
        raise SearchError(f"{what} says nothing to search for: add id, ids, features, text or picture", "invalid")


def _converted(fields: Mapping[str, Any], struct: type[T], strict: bool) -> T:
    """The struct of these fields; raises SearchError."""
    for name in fields:
        if name not in struct.__struct_fields__:
            raise SearchError(f"no parameter {name!r}{suggestion(name, struct.__struct_fields__)}", "unknown_parameter")
    try:
        return msgspec.convert(fields, struct, strict=strict)
    except msgspec.ValidationError as error:
        place = place_of(error)
        reason = "bad_k" if place in ("k", "offset") else "invalid"
        message = misfit(error, "query", fields, struct.__struct_fields__)
        raise SearchError(message + EXPECTED.get(place, ""), reason) from error


async def body_of(request: Request, limit: int) -> bytes:
    """The body of a request.

    Raises SearchError: ``oversize`` as soon as it is longer than ``limit`` bytes, ``encoded`` if it is compressed.
    """
    for header, plain in (("content-encoding", "identity"), ("transfer-encoding", "chunked")):
        if request.headers.get(header, plain).strip().lower() not in ("", plain):
            raise SearchError(f"a body with {header} {request.headers[header]!r}: send it as it is", "encoded")
    chunks, size = [], 0
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise _oversize(int(announced), limit)
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _oversize(size, limit)
        chunks.append(chunk)
    return b"".join(chunks)


def _oversize(size: int, limit: int) -> SearchError:
    return SearchError(f"a body of {size} bytes or more, at most {limit} are taken: split it", "oversize")


def content_type(request: Request) -> str:
    """The media type of a request, without parameters; JSON unless it says otherwise."""
    return request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()


def check_events(inbox: Inbox, body: bytes, kind: str) -> Checked:
    """The events in a body: one, or one on each line if its ``kind`` is JSON lines. Raises SearchError for too many."""
    payloads = [line for line in body.split(b"\n") if line.strip()] if kind in JSON_LINES else [body]
    if len(payloads) > MAX_EVENTS:
        raise SearchError(f"{len(payloads)} events, at most {MAX_EVENTS} are taken at once: split them", "oversize")
    checked = Checked([], [], UnreadFields())
    # curl sends JSON under the content type of forms, so only MessagePack is told apart here.
    event_type = MESSAGEPACK if kind == MESSAGEPACK else "application/json"
    for number, payload in enumerate(payloads, start=1):
        try:
            checked.events.append(inbox.check(payload, event_type, checked.unread))
        except FeedbackError as error:
            message = f"{error}" if kind in (MESSAGEPACK, *JSON_LINES) else f"{error}{hint(body)}"
            checked.bad.append(BadEvent(number, error.reason, message.removeprefix("event: ")))
    return checked


def hint(body: bytes) -> str:
    """What to do if a body that must be one JSON event seems to be several."""
    text = body.decode(errors="replace").strip()
    several = text.startswith("[")
    if text.startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            several = text[json.JSONDecoder().raw_decode(text)[1] :].lstrip().startswith("{")
    if not several:
        return ""
    return (
        f": one event was expected; to send several, put each on a line of its own, with Content-Type: {JSON_LINES[0]} "
        "(curl --data-binary)"
    )
