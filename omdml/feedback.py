"""Feedback events as they are sent: a closed union of frozen types, decoded once, when they enter a process.

Events are JSON, or MessagePack if the record's header ``content-type`` says so. If an event cannot be decoded,
``decode`` raises FeedbackError with a reason code (see letter_reasons.py), and the caller makes a dead letter of the
event.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated, get_args, get_type_hints

import msgspec
from msgspec import Meta

from omdml.errors import FeedbackError
from omdml.messages.decoding import malformed, misfit, plain_data

# The most bytes of an event, inline vectors included.
MAX_EVENT_BYTES = 1 << 20
# The most comparisons that one event may stand for.
MAX_COMPARISONS = 1000
# The most items of one result page.
MAX_SHOWN = 1000
MESSAGEPACK = "application/msgpack"

Id = Annotated[str, Meta(min_length=1, max_length=512)]
User = Annotated[str, Meta(min_length=1, max_length=200)]
EventId = Annotated[str, Meta(min_length=1, max_length=128)]
Items = Annotated[tuple[Id, ...], Meta(max_length=10_000)]
Shown = Annotated[tuple[Id, ...], Meta(max_length=MAX_SHOWN)]
# Vectors by id of the item, then by modality.
ItemVectors = dict[str, dict[str, list[float]]]
Time = Annotated[float, Meta(ge=0)]
Ranks = Annotated[tuple[Annotated[int, Meta(ge=1)], ...], Meta(max_length=MAX_SHOWN)]
Query = Annotated[Id, Meta(description="The item that was searched with")]
# What fields mean, for the pages and the schema of nodes. Meanings that fit into a line stand at their field.
ID = (
    "The sender's name for the event. If it comes again before 4,096 other ids of the model, the event is not learned "
    "twice."
)
AT = "When it happened, in seconds since the epoch (1970-01-01 UTC)"
FEATURES = (
    "Raw vectors of items that are not in the catalogue: by id of the item, then by modality: "
    '`{"new-1": {"color": [0.9, 0.1]}}`'
)
USER = "The person or session. Learners never see it; `omdml forget` finds events by it."
POSITIONS = "The rank of each item of `shown`, from 1, if they are not in the order of the page"
TASK = "The task in whose sense the two are similar or not, if the model has several tasks"
MARGIN = (
    "By how much the squared distance of `far` should be larger: 0 to 10. When a model begins, the squared distance of "
    "random pairs is about 1."
)
SETS = "Ids of sets that answer the query well. The id of an item stands for a set of this item alone."


class Feedback(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, gc=False):
    """The fields that all kinds of events have.

    ``model`` names the model that learns from the event. ``at`` is the time of the event in seconds since the epoch.
    ``features`` may bring vectors of items, such as those that are not in the catalogue: by id of the item, then by
    modality, in the units that the catalogue was built from. ``id`` is the sender's own id of the event, of at most 128
    characters: a sender that repeats an event repeats its id, so that the model learns the event once. ``user``
    identifies the person or session that clicked, in at most 200 characters. Learners never see it. The option
    ``max_share_a_user`` limits its share of the events, and ``omdml forget`` removes what was learned from it.

    Ids of items have at most 512 characters. An event has at most 1 MiB, and stands for at most 1,000 comparisons.
    """

    model: Annotated[Id, Meta(description="The model that learns from the event")]
    id: Annotated[EventId | None, Meta(description=ID)] = None
    at: Annotated[Time | None, Meta(description=AT)] = None
    features: Annotated[ItemVectors | None, Meta(description=FEATURES)] = None
    user: Annotated[User | None, Meta(description=USER)] = None


class Triplet(Feedback, frozen=True, kw_only=True, tag="triplet", gc=False):
    """``relevant`` should be closer to ``query`` than ``irrelevant`` is."""

    query: Query
    relevant: Annotated[Id, Meta(description="An item that fits the query")]
    irrelevant: Annotated[Id, Meta(description="An item that fits the query less")]


class Ranking(Feedback, frozen=True, kw_only=True, tag="ranking", gc=False):
    """Every item of ``relevant`` should be closer to ``query`` than every item of ``irrelevant``."""

    query: Query
    relevant: Annotated[Items, Meta(description="Items that fit the query")]
    irrelevant: Annotated[Items, Meta(description="Items that fit the query less")]


class Page(Feedback, frozen=True, kw_only=True, tag="page", gc=False):
    """A page of results: the items ``shown`` for ``query``, from the top, and which of them were ``clicked``.

    If ``shown`` is not in that order, ``positions`` has the rank of each shown item.
    """

    query: Query
    shown: Annotated[Shown, Meta(description="The items of the page, from the top")]
    clicked: Annotated[Shown, Meta(description="Those of `shown` that were clicked: at least one, and not all")]
    positions: Annotated[Ranks | None, Meta(description=POSITIONS)] = None


# The task of a pair that names no task.
ONLY_TASK = "default"


class Pair(Feedback, frozen=True, kw_only=True, tag="pair", gc=False):
    """``left`` and ``right`` are similar, or not, in the sense of ``task``."""

    left: Annotated[Id, Meta(description="An item")]
    right: Annotated[Id, Meta(description="Another item")]
    similar: Annotated[bool, Meta(description="Whether the two are similar")]
    task: Annotated[Id, Meta(description=TASK)] = ONLY_TASK


class Quadruplet(Feedback, frozen=True, kw_only=True, tag="quadruplet", gc=False):
    """The two of ``near`` should be closer to each other than the two of ``far`` are, by ``margin``.

    The margin is limited because distances of random pairs are about 1. One event with margin 100 undid what a full
    matrix had learned from 1,000 events.
    """

    near: Annotated[tuple[Id, Id], Meta(description="Two items that should be closer to each other")]
    far: Annotated[tuple[Id, Id], Meta(description="Two items that should be further from each other")]
    margin: Annotated[float, Meta(ge=0, le=10, description=MARGIN)] = 1.0


class SetJudgement(Feedback, frozen=True, kw_only=True, tag="set", gc=False):
    """The sets of ``relevant`` answer the elements of ``query`` better than the sets of ``irrelevant``.

    An item's id stands for a set of this item alone.
    """

    query: Annotated[Items, Meta(description="The elements that were searched with")]
    relevant: Annotated[Items, Meta(description=SETS)]
    irrelevant: Annotated[Items, Meta(description="Ids of sets that answer the query less well")]


AnyFeedback = Triplet | Ranking | Page | Pair | Quadruplet | SetJudgement
# What each kind is called in the field ``type``.
KINDS: dict[type[Feedback], str] = {kind: str(kind.__struct_config__.tag) for kind in get_args(AnyFeedback)}
FIELDS: dict[type, set[str]] = {kind: {"type", *kind.__struct_fields__} for kind in KINDS}


def fields_of(kind: type[Feedback], field_type: object) -> tuple[str, ...]:
    """The fields of a kind, without those of all kinds, that have this type, or this type or None."""
    hints = get_type_hints(kind)
    own = [name for name in kind.__struct_fields__ if name not in Feedback.__struct_fields__]
    return tuple(name for name in own if field_type in (hints[name], *get_args(hints[name])))


# The fields of each kind that are lists of items, which may not be empty, and the numbers, which must be finite.
LISTS = {kind: fields for kind in KINDS if (fields := fields_of(kind, tuple[str, ...]))}
NUMBERS = {kind: fields for kind in KINDS if (fields := fields_of(kind, float))}


def kind_of(event: AnyFeedback) -> str:
    """The kind of an event, as its field ``type`` names it."""
    return KINDS[type(event)]


class TooLarge(bytes):
    """Stands for an event that is too large to be read. Its bytes are the sentence that says how large it is.

    This is a type and not a special text, so that only a reader of a log can create it, and never a sender.
    """

    __slots__ = ()


_json = msgspec.json.Decoder(AnyFeedback)
_messagepack = msgspec.msgpack.Decoder(AnyFeedback)
_encoder = msgspec.json.Encoder()
_packer = msgspec.msgpack.Encoder()


def decode(payload: bytes, content_type: str = "application/json") -> AnyFeedback:
    """Decode the bytes of one event.

    Raises
    ------
    FeedbackError
        ``reason`` is one of :data:`omdml.letter_reasons.REASONS`; the message names the field by its path.

    Examples
    --------
    >>> decode(b'{"type":"triplet","model":"shop","query":"a","relevant":"b","irrelevant":"c"}').relevant
    'b'
    >>> decode(b'{"type":"triplet","model":"shop","query":"a","relevant":"b"}')
    Traceback (most recent call last):
    omdml.errors.FeedbackError: event: it has no field 'irrelevant', which is needed: add it
    """
    if type(payload) is TooLarge:
        raise FeedbackError(f"event {payload.decode()}", reason="oversize")
    if len(payload) > MAX_EVENT_BYTES:
        raise FeedbackError(
            f"event of {len(payload)} bytes, at most {MAX_EVENT_BYTES} are taken: split it", reason="oversize"
        )
    decoder = _messagepack if content_type == MESSAGEPACK else _json
    try:
        event = decoder.decode(payload)
    except msgspec.ValidationError as error:
        raise FeedbackError(_misfit(error, payload, content_type)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"event is not {content_type}: {malformed(error, payload)}"
        raise FeedbackError(message, reason="not_json") from error
    if type(event) in LISTS:
        _check_lists(event)
    # What only one kind must fulfil.
    if type(event) is Page:
        _check_page(event)
    # MessagePack can encode NaN and infinity; JSON cannot.
    if event.at is not None and not math.isfinite(event.at):
        raise FeedbackError(f"event: `at` is {event.at}, expected seconds since the epoch", reason="not_finite")
    if type(event) in NUMBERS:
        _check_numbers(event)
    return event


def unread_fields(payload: bytes, event: AnyFeedback, content_type: str = "application/json") -> list[str]:
    """The names of an event's fields that its kind does not have: nothing reads these. Empty if a name is not UTF-8.

    Examples
    --------
    >>> payload = b'{"type":"triplet","model":"shop","query":"a","relevant":"b","irrelevant":"c","usr":"x"}'
    >>> unread_fields(payload, decode(payload))
    ['usr']
    """
    decode_fields = msgspec.msgpack.decode if content_type == MESSAGEPACK else msgspec.json.decode
    try:
        return list(decode_fields(payload, type=dict[str, msgspec.Raw]).keys() - FIELDS[type(event)])
    except UnicodeDecodeError:
        return []


def _misfit(error: msgspec.ValidationError, payload: bytes, content_type: str) -> str:
    """Say why a payload that can be decoded is no event."""
    data = plain_data(payload, (msgspec.msgpack if content_type == MESSAGEPACK else msgspec.json).decode)
    kind = data.get("type") if isinstance(data, dict) else None
    known = next((FIELDS[struct] for struct, name in KINDS.items() if name == kind), {"type"})
    about_the_kind = str(error).endswith(("- at `$.type`", "field `type`"))
    return misfit(error, "event", data, known, list(KINDS.values()) if about_the_kind else ())


def _check_lists(event: AnyFeedback) -> None:
    """Refuse an event with an empty list."""
    for field in LISTS[type(event)]:
        if getattr(event, field) == ():
            advice = "name at least one item"
            if field == "clicked":
                advice = "and a page without a click teaches nothing: do not send it"
            raise FeedbackError(f"event: list `{field}` is empty, {advice}", reason="empty_list")


def _check_numbers(event: AnyFeedback) -> None:
    """Refuse an event with a number that is not finite."""
    for field in NUMBERS[type(event)]:
        number = getattr(event, field)
        if number is not None and not math.isfinite(number):
            raise FeedbackError(f"event: `{field}` is {number}, expected a number", reason="not_finite")


def _check_page(page: Page) -> None:
    """Refuse a page that no user can have seen."""
    shown = set(page.shown)
    if len(shown) < len(page.shown):
        twice = next(item for item, count in Counter(page.shown).items() if count > 1)
        raise FeedbackError(f"event: `shown` names {twice!r} twice, expected each item of the page once")
    for item in page.clicked:
        if item not in shown:
            raise FeedbackError(f"event: `clicked` names {item!r}, which is not in `shown`: send all that was shown")
    if page.positions is None:
        return
    if len(page.positions) != len(page.shown):
        counts = f"{len(page.positions)} `positions` of {len(page.shown)} shown items"
        raise FeedbackError(f"event: {counts}, expected one each")
    if len(set(page.positions)) < len(page.positions):
        rank = next(rank for rank, count in Counter(page.positions).items() if count > 1)
        raise FeedbackError(f"event: `positions` has {rank} twice, expected another rank for each shown item")


def encode(event: AnyFeedback, content_type: str = "application/json") -> bytes:
    """Encode an event; the inverse of :func:`decode`."""
    return (_packer if content_type == MESSAGEPACK else _encoder).encode(event)
