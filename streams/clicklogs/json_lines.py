"""Logs with one JSON object on each line: UBI, as OpenSearch exports its two indices, and Metarank's events.

UBI: https://github.com/o19s/ubi, schema 1.3.0. Metarank: https://github.com/metarank/metarank, doc/event-schema.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from omdml.errors import FeedbackError, quoted
from omdml.streams.clicklogs.entries import Bad, Clicked, Entry, PassedOver, Shown
from omdml.streams.clicklogs.fields import ClickRecord, Fields, as_id, seconds

UBI = {
    "page": "query_id",
    "query": "user_query",
    "shown": "query_response_hit_ids",
    "action": "action_name",
    "item": "event_attributes.object.object_id",
    "model": "",
    "at": "timestamp",
    # The person whose page it was is taken over only if --field user=PATH asks for it.
    "user": "",
}
METARANK = {
    "page": "id",
    "query": "fields.query",
    "shown": "items",
    "ranking": "ranking",
    "action": "type",
    "item": "item",
    "model": "",
    "at": "timestamp",
    # The person whose page it was is taken over only if --field user=PATH asks for it.
    "user": "",
}
ReadRecord = Callable[[ClickRecord, Fields, Collection[str]], Entry]


def entries(
    lines: Iterable[tuple[int, bytes]], read: ReadRecord, fields: Fields, actions: Collection[str]
) -> Iterator[tuple[int, Entry]]:
    """Yield what each line says, with its number. Blank lines are skipped. ``actions`` are the kinds of click."""
    for number, line in lines:
        if line.strip():
            yield number, _entry(line, read, fields, actions)


def _entry(line: bytes, read: ReadRecord, fields: Fields, actions: Collection[str]) -> Entry:
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Bad(FeedbackError(f"not JSON: {error}", reason="not_json"))
    # An export from an index wraps each document.
    if isinstance(record, dict) and isinstance(record.get("_source"), dict):
        record = record["_source"]
    if not isinstance(record, dict):
        return Bad(FeedbackError(f"expected a JSON object, got {quoted(line)}", reason="not_json"))
    try:
        return read(record, fields, actions)
    except FeedbackError as error:
        return Bad(error)


def ubi(record: ClickRecord, fields: Fields, actions: Collection[str]) -> Entry:
    """Read a UBI record: a query with its hits, or an event about one of the hits."""
    action = fields.optional(record, "action")
    if action is None:
        return _shown(record, fields, [as_id(item, fields.path("shown")) for item in _list(record, fields)])
    if action not in actions:
        return PassedOver("events of other actions")
    return Clicked(fields.text(record, "page"), fields.text(record, "item"))


def metarank(record: ClickRecord, fields: Fields, actions: Collection[str]) -> Entry:
    """Read a Metarank event: a ranking, or an interaction with one of its items."""
    kind = record.get("event")
    if kind == "ranking":
        items = [item.get("id") if isinstance(item, dict) else item for item in _list(record, fields)]
        return _shown(record, fields, [as_id(item, f"{fields.path('shown')}.id") for item in items])
    if kind != "interaction":
        return PassedOver("events that are no ranking or interaction")
    if fields.text(record, "action") not in actions:
        return PassedOver("events of other actions")
    if fields.optional(record, "ranking") is None:
        return PassedOver("clicks that name no ranking")
    return Clicked(fields.text(record, "ranking"), fields.text(record, "item"))


def _shown(record: ClickRecord, fields: Fields, items: list[str]) -> Shown:
    # The optional fields are read first: an error about a required one would leave them among those that no record had.
    model, user = fields.optional(record, "model"), fields.optional(record, "user")
    time = seconds(fields.value(record, "at"), fields.path("at"))
    page, query = fields.text(record, "page"), fields.text(record, "query")
    return Shown(page, query, items, model=model, at=time, user=user)


def _list(record: ClickRecord, fields: Fields) -> list[object]:
    value = fields.value(record, "shown")
    if value is None:
        return []
    if not isinstance(value, list):
        raise FeedbackError(f"`{fields.path('shown')}` is {value!r:.80}, expected a list of items")
    return value
