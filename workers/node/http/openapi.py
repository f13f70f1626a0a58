"""The node's HTTP interface as an OpenAPI document; bodies are described by the structs that check them."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from omdml.feedback import AnyFeedback
from omdml.streams.catalogues.changes.change import Change
from omdml.workers.node.experiments.experiments import Outcome
from omdml.workers.node.following.course import Remark, Step
from omdml.workers.node.http.endpoints.items.changes import ItemsChanged, OfModel, PutItem
from omdml.workers.node.http.endpoints.operators import LetterAt, Letters, Settle
from omdml.workers.node.http.endpoints.trials import Clicked, Clicks
from omdml.workers.node.http.meanings import explain_fields
from omdml.workers.node.http.problems import PROBLEM
from omdml.workers.node.http.requests import (
    Compare,
    Events,
    History,
    ItemAtlas,
    ItemPicture,
    Items,
    ItemSearch,
    Look,
    Move,
    OfVersion,
    Search,
)
from omdml.workers.node.searching.answers import Answer, Answers
from omdml.workers.node.searching.compare import Comparison
from omdml.workers.versions.judgement import Judgement

JSON = "application/json"


@cache
def document() -> bytes:
    """The OpenAPI document in JSON. Making it takes as long as twenty searches, and anybody may ask for it."""
    return msgspec.json.encode(openapi())


def openapi() -> dict[str, Any]:
    """The OpenAPI document of all endpoints."""
    structs = [
        *(Search, Answer, Answers, Comparison, AnyFeedback, Move, Step, Remark, Judgement),
        *(PutItem, Change, ItemsChanged, Settle, Clicks, Clicked, Outcome, *IN_QUERIES),
    ]
    described, components = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    search, answer, answers, comparison, event, move, step, _, judged, *more = described[: -len(IN_QUERIES)]
    put_item, change, changed, settle, clicks, clicked, outcome = more
    components["Error"] = ERROR
    explain_fields(components)
    # Structs of queries are told as parameters.
    fields, look, items, picture, atlas, history, of_version, compare, events, of_model, of_letters, letter_at = (
        parameters(components.pop(struct.__name__)) for struct in IN_QUERIES
    )
    paths = {
        "/search": {
            "get": operation("Items closest to one item", answer, parameters=fields, more=BEHIND),
            "post": operation(
                "Items closest to items, to raw vectors, or to each of several queries",
                {"anyOf": [answer, answers]},
                body={JSON: search},
                more=BEHIND,
            ),
        },
        "/feedback": {
            "post": operation(
                "Send events. All of them are taken or none. The answer comes when they are durable",
                {
                    "type": "object",
                    "properties": {
                        "accepted": {"type": "integer"},
                        "unread_fields": {
                            "type": "string",
                            "description": "fields of these events that nothing reads, such as a mistyped `user`",
                        },
                    },
                },
                body={JSON: event, "application/x-ndjson": {"type": "string"}, "application/msgpack": event},
                status="202",
                token=True,
            )
        },
        "/models": {"get": operation("Which version of each model answers, and how fresh it is", parameters=look)},
        **{
            f"/models/{{model}}/{verb}": {
                "post": operation(summary, MOVED, body={JSON: move}, parameters=OF_MODEL, token=True)
            }
            for verb, summary in MOVES.items()
        },
        "/models/{model}/history": {
            "get": operation("The newest lines of the history, oldest first", LINES, parameters=[*OF_MODEL, *history])
        },
        "/models/{model}/guard": {
            "get": operation("What the guard decided last, by what margin, and why", judged, parameters=OF_MODEL)
        },
        "/models/{model}/steps": {
            "get": operation(
                "What went live on this node since it started, oldest first",
                {"type": "object", "properties": {"model": TEXT, "steps": {"type": "array", "items": step}}},
                parameters=OF_MODEL,
            )
        },
        "/models/{model}/inspect": {"get": operation("What a kept version holds", parameters=[*OF_MODEL, *of_version])},
        "/models/{model}/compare": {
            "get": operation(
                "What moved in the answer to an item between two versions",
                comparison,
                parameters=[*OF_MODEL, *compare],
            )
        },
        "/items": {
            "get": operation("Ids of a model's items, in the catalogue's order", ITEMS, parameters=items),
            "post": operation(
                "Put, change and delete items: one change on each line, all of them or none. " + CONFIRMED,
                changed,
                body={"application/x-ndjson": change},
                parameters=of_model,
                token=True,
            ),
        },
        "/items/{id}": {
            "put": operation(
                "Put an item, which replaces one with the same id, or give an item other attributes. " + CONFIRMED,
                changed,
                body={JSON: put_item, "image/*": {"type": "string", "format": "binary"}},
                parameters=[*OF_ITEM, *of_model],
                token=True,
            ),
            "delete": operation(
                "Delete an item. If there is none, the answer lists its id in `unknown`. " + CONFIRMED,
                changed,
                parameters=[*OF_ITEM, *of_model],
                token=True,
            ),
        },
        "/picture": {
            "get": operation("The picture of an item", {"type": "string"}, kind="image/*", parameters=picture)
        },
        "/atlas": {
            "get": operation(
                "Thumbnails of up to 256 items in one picture. `GET /items` says where each one is",
                {"type": "string"},
                kind="image/webp",
                parameters=atlas,
            )
        },
        "/events": {
            "get": operation(
                "A stream of server-sent events. A `step` (Step) tells what is live, then each version that goes live "
                "or is moved. A `remark` (Remark) tells that a version was withheld, or that mistakes became more "
                "frequent",
                {"type": "string"},
                kind="text/event-stream",
                parameters=events,
            )
        },
        "/experiments": {
            "get": operation(
                "The result of each experiment so far, on this node",
                {"type": "object", "properties": {"experiments": {"type": "array", "items": outcome}}},
            )
        },
        "/clicks": {
            "post": operation(
                "Count clicks on an interleaved answer for its experiment. Nothing is learned from this",
                clicked,
                body={JSON: clicks},
                status="202",
                token=True,
            )
        },
        "/status": {
            "get": operation(
                "The whole installation, as `omdml status` and `omdml doctor` see it. " + OF_OPERATORS, token=True
            )
        },
        "/letters": {
            "get": operation("The newest dead letters. " + OF_OPERATORS, parameters=of_letters, token=True),
        },
        "/letters/explain": {
            "get": operation(
                "One dead letter: what became of its event, and whether it would be learned now. " + OF_OPERATORS,
                parameters=letter_at,
                token=True,
            )
        },
        **{
            f"/letters/{verb}": {
                "post": operation(f"{summary}. {OF_OPERATORS}", SETTLED, body={JSON: settle}, token=True)
            }
            for verb, summary in SETTLING.items()
        },
        "/session": {
            "post": operation(
                "Exchange a token for a cookie that may read: browsers send no token with pictures and streams",
                status="204",
                token=True,
            )
        },
        "/healthz": {"get": operation("Answers 200 if the node makes progress, 503 if it hangs")},
        "/readyz": {
            "get": operation("Answers 200 if the models configured by their own names can answer, 503 otherwise")
        },
        "/metrics": {"get": operation("Metrics for Prometheus", {"type": "string"}, kind="text/plain")},
        "/metrics/models": {
            "get": operation(
                "Metrics of single models for Prometheus",
                {"type": "string"},
                kind="text/plain",
                parameters=[{"name": "model", "in": "query", "schema": TEXT, "description": "A model, or a pattern"}],
            )
        },
        "/schema": {"get": operation("This document")},
        "/click.js": {
            "get": operation(
                "The script that sends the clicks of a web page", {"type": "string"}, kind="text/javascript"
            )
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "omdml retrieval node", "version": "1"},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


MOVES = {
    "rollback": "Make an older version live: the one named, or the one before. Needs a node with a token",
    "pin": "Keep a version live, whatever is learned: the one named, or the live one. Needs a node with a token",
    "unpin": "Make the newest version live again. Needs a node with a token",
}
SETTLING = {
    "resend": "Send the events of dead letters again, if they would be learned now, each at most once",
    "dismiss": "Close dead letters without sending their events again",
}
SETTLED = {
    "type": "object",
    "properties": {
        "settled": {"type": "integer"},
        "left": {"type": "object", "additionalProperties": {"type": "integer"}, "description": "how many, by reason"},
    },
}
OF_OPERATORS = "Needs the role `operator` if the node has tokens"
IN_QUERIES = (
    *(ItemSearch, Look, Items, ItemPicture, ItemAtlas, History, OfVersion, Compare, Events, OfModel),
    *(Letters, LetterAt),
)
CONFIRMED = "The answer comes when this is durable and this node searches with it"
TEXT = {"type": "string"}
LINES = {"type": "object", "properties": {"model": TEXT, "lines": {"type": "array", "items": {"type": "object"}}}}
ITEMS = {
    "type": "object",
    "properties": {
        "model": TEXT,
        "items": {"type": "array", "items": TEXT},
        "total": {"type": "integer", "description": "how many there are"},
        "position": {"type": "integer", "description": "changes that this node answers with"},
        "pictures": {"type": "boolean", "description": "whether this node has pictures of them"},
        "attributes": {"type": "array", "items": TEXT, "description": "what `fields` of a search may name"},
        "describes": {
            "type": "object",
            "description": "what a search may bring instead of an item: these texts, and whether a picture",
            "properties": {"texts": {"type": "array", "items": TEXT}, "picture": {"type": "boolean"}},
        },
        "atlas": {
            "type": "object",
            "description": "if there are thumbnails: pixels a side of one, and how many a line of an atlas has",
            "properties": {"side": {"type": "integer"}, "cells": {"type": "integer"}},
        },
        "cells": {
            "type": "array",
            "description": "for each item `first` of its atlas and its cell there, counted line by line; null: none",
            "items": {"type": ["array", "null"], "items": {"type": "integer"}},
        },
    },
}
OF_MODEL = [{"name": "model", "in": "path", "required": True, "schema": TEXT, "description": "The model"}]
OF_ITEM = [{"name": "id", "in": "path", "required": True, "schema": TEXT, "description": "The item's id"}]
MOVED = {
    "type": "object",
    "properties": {
        "model": {"type": "string"},
        "version": {"type": "integer"},
        "serial": {"type": "integer"},
        "pinned": {"type": "boolean"},
    },
}
ERROR = {
    "type": "object",
    "description": "A problem as RFC 9457 describes it.",
    "required": ["title", "status", "detail", "error", "message"],
    "properties": {
        "title": {"type": "string", "description": "what the status means"},
        "status": {"type": "integer", "description": "the status of the response"},
        "detail": {"type": "string", "description": "the same as `message`"},
        "error": {"type": "string", "description": "a code that never changes"},
        "message": {"type": "string"},
        "version": {"type": "integer", "description": "with the error `behind`: the live version"},
        "number": {"type": "integer", "description": "the first bad event of `POST /feedback`, counted from 1"},
        "errors": {
            "type": "array",
            "items": {"type": "object"},
            "description": "the first bad events of `POST /feedback`",
        },
    },
}
REFUSED = {
    "description": "refused",
    "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Error"}}},
}
BEHIND = {
    "503": REFUSED
    | {
        "description": "the node has no version, or none as new as `min_version`",
        "headers": {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds; with the error `behind`"}},
    }
}


def operation(
    summary: str,
    answer: dict[str, Any] | None = None,
    *,
    kind: str = JSON,
    status: str = "200",
    parameters: list[dict[str, Any]] | None = None,
    body: dict[str, dict[str, Any]] | None = None,
    token: bool = False,
    more: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One method of one path; ``body`` holds a schema a media type, ``token`` says that it writes, ``more`` are
    further responses by status.
    """
    described: dict[str, Any] = {
        "summary": summary,
        "responses": {
            status: {"description": "done", "content": {kind: {"schema": answer or {"type": "object"}}}},
            **(more or {}),
        },
    }
    if parameters:
        described["parameters"] = parameters
    if body:
        content = {media: {"schema": schema} for media, schema in body.items()}
        described["requestBody"] = {"required": summary not in MOVES.values(), "content": content}
    if token:
        # Without one if the node has none.
        described["security"] = [{"token": []}, {}]
        described["responses"]["401"] = REFUSED | {"description": "the token is missing or wrong"}
    described["responses"]["default"] = REFUSED
    return described


def parameters(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """A struct's fields as query parameters."""
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": field}
        for name, field in schema["properties"].items()
    ]
