"""The node's HTTP interface as an OpenAPI document; bodies are described by the structs that check them."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from omdml.feedback import AnyFeedback
from omdml.streams.catalogues.changes.change import Change
from omdml.workers.node.experiments.experiments import Outcome
from omdml.workers.node.following.went_live import Remark, Step
from omdml.workers.node.http.endpoints.experiments import Clicked, Clicks
from omdml.workers.node.http.endpoints.items.changes import ItemsChanged, OfModel, PutItem
from omdml.workers.node.http.endpoints.operators import LetterAt, Letters, Settle
from omdml.workers.node.http.requests import (
    Compare,
    Events,
    History,
    ItemAtlas,
    ItemPicture,
    Items,
    ItemSearch,
    ModelsSince,
    Move,
    OfVersion,
    Search,
)
from omdml.workers.node.http.schemas import (
    BEHIND,
    ITEMS,
    JSON,
    LETTERS,
    LINES,
    MODEL,
    MODELS,
    MOVED,
    OF_ITEM,
    OF_MODEL,
    SETTLED,
    TEXT,
    Structs,
    operation,
)
from omdml.workers.node.searching.answers import Answer, Answers
from omdml.workers.node.searching.compare import Comparison
from omdml.workers.versions.judgement import Judgement

MOVES = {
    "rollback": "Make an older version live until `unpin`: the one named, or the one before",
    "pin": "Keep a version live until `unpin`: the one named, or the live one",
    "unpin": "Make the newest version live again, and follow what is learned",
}
OF_MOVES = "Needs the role `operator`, and a node with tokens"
SETTLING = {
    "resend": "Send the events of dead letters again, if they would be learned now, each at most once",
    "dismiss": "Close dead letters without sending their events again",
}
OF_OPERATORS = "Needs the role `operator` if the node has tokens"
IN_BODIES = (
    *(Search, Answer, Answers, Comparison, AnyFeedback, Move, Step, Remark, Judgement),
    *(PutItem, Change, ItemsChanged, Settle, Clicks, Clicked, Outcome),
)
IN_QUERIES = (
    *(ItemSearch, ModelsSince, Items, ItemPicture, ItemAtlas, History, OfVersion, Compare, Events, OfModel),
    *(Letters, LetterAt),
)
CONFIRMED = (
    "The answer comes when this is durable and this node searches with it. Needs the role `items` if the node has "
    "tokens"
)
OF_SENDERS = "Needs the role `feedback` if the node has tokens"


@cache
def document() -> bytes:
    """The OpenAPI document in JSON. Making it takes as long as twenty searches, and anybody may ask for it."""
    return msgspec.json.encode(openapi())


def openapi() -> dict[str, Any]:
    """The OpenAPI document of all endpoints."""
    structs = Structs(IN_BODIES, IN_QUERIES)
    return {
        "openapi": "3.1.0",
        "info": {"title": "omdml retrieval node", "version": "1"},
        "paths": {
            **searches(structs),
            **models(structs),
            **items(structs),
            **experiments(structs),
            **operators(structs),
            **monitoring(),
            **pages(),
        },
        "components": {
            "schemas": structs.components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def searches(structs: Structs) -> dict[str, Any]:
    """Searches, and the feedback on their answers."""
    answer, event = structs.schema(Answer), structs.schema(AnyFeedback)
    return {
        "/search": {
            "get": operation(
                "Items closest to one item",
                answer,
                parameters=structs.query(ItemSearch),
                tagged=True,
                more=BEHIND,
            ),
            "post": operation(
                "Items closest to one or several items, to raw vectors, to words, to a picture, or to each of several "
                "queries",
                {"anyOf": [answer, structs.schema(Answers)]},
                body={JSON: structs.schema(Search)},
                more=BEHIND,
            ),
        },
        "/feedback": {
            "post": operation(
                "Send events, at most 10,000. Either all of them are taken, or no event is. The answer comes when they "
                "are durable. " + OF_SENDERS,
                {
                    "type": "object",
                    "properties": {
                        "accepted": {"type": "integer", "description": "How many events were taken"},
                        "at": {
                            "type": "number",
                            "description": "When the node took them, in seconds since the epoch (1970-01-01 UTC). If "
                            "the newest event of a version is older, the version has learned none of them.",
                        },
                        "unread_fields": {
                            "type": "string",
                            "description": "Fields of these events that nothing reads, such as a mistyped `user`",
                        },
                    },
                },
                body={JSON: event, "application/x-ndjson": {"type": "string"}, "application/msgpack": event},
                status="202",
                token=True,
            )
        },
    }


def models(structs: Structs) -> dict[str, Any]:
    """What each model answers with, how that came about, and how to change it."""
    return {
        "/models": {
            "get": operation(
                "Which version of each model answers, and how fresh it is",
                MODELS,
                parameters=structs.query(ModelsSince),
            )
        },
        **{
            f"/models/{{model}}/{verb}": {
                "post": operation(
                    f"{summary}. {OF_MOVES}",
                    MOVED,
                    body={JSON: structs.schema(Move)},
                    optional=True,
                    parameters=OF_MODEL,
                    token=True,
                )
            }
            for verb, summary in MOVES.items()
        },
        "/models/{model}/history": {
            "get": operation(
                "The newest lines of the model's history, oldest first: versions that went live, were withheld or "
                "moved",
                LINES,
                parameters=[*OF_MODEL, *structs.query(History)],
            )
        },
        "/models/{model}/guard": {
            "get": operation(
                "What the guard decided last: whether a version may go live, by what margin, and why",
                structs.schema(Judgement),
                parameters=OF_MODEL,
            )
        },
        "/models/{model}/steps": {
            "get": operation(
                "What went live on this node since it started, oldest first. Of very many steps, older ones are left "
                "out",
                {
                    "type": "object",
                    "properties": {
                        "model": MODEL,
                        "steps": {"type": "array", "items": structs.schema(Step), "description": "The steps"},
                    },
                },
                parameters=OF_MODEL,
            )
        },
        "/models/{model}/inspect": {
            "get": operation(
                "What a version holds: learner, time, weights, and the shape of each array",
                parameters=[*OF_MODEL, *structs.query(OfVersion)],
            )
        },
        "/models/{model}/compare": {
            "get": operation(
                "Which items moved between the answers of two versions to the same search",
                structs.schema(Comparison),
                parameters=[*OF_MODEL, *structs.query(Compare)],
            )
        },
    }


def items(structs: Structs) -> dict[str, Any]:
    """The items of a model, their pictures, and changes of them."""
    changed, of_model = structs.schema(ItemsChanged), structs.query(OfModel)
    return {
        "/items": {
            "get": operation(
                "Ids, labels and attributes of a model's items, in the catalogue's order",
                ITEMS,
                parameters=structs.query(Items),
            ),
            "post": operation(
                "Put, change and delete items: one change on each line. Either all of them are made, or no change is. "
                + CONFIRMED,
                changed,
                body={"application/x-ndjson": structs.schema(Change)},
                parameters=of_model,
                token=True,
            ),
        },
        "/items/{id}": {
            "put": operation(
                "Put an item, or give an existing item other attributes. An item with the same id is replaced. "
                + CONFIRMED,
                changed,
                body={JSON: structs.schema(PutItem), "image/*": {"type": "string", "format": "binary"}},
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
            "get": operation(
                "The picture of an item", {"type": "string"}, kind="image/*", parameters=structs.query(ItemPicture)
            )
        },
        "/atlas": {
            "get": operation(
                "An atlas: thumbnails of up to 256 items in one picture. `GET /items` says where each one is",
                {"type": "string"},
                kind="image/webp",
                parameters=structs.query(ItemAtlas),
            )
        },
        "/events": {
            "get": operation(
                "A stream of server-sent events of two kinds. The first `step` (see Step) says what is live, and each "
                "later one that another version went live, or was moved or pinned. A `remark` (see Remark) says that a "
                "version was withheld, or that mistakes became more frequent",
                {"type": "string"},
                kind="text/event-stream",
                parameters=structs.query(Events),
            )
        },
    }


def experiments(structs: Structs) -> dict[str, Any]:
    """Experiments, and the clicks that they count."""
    return {
        "/experiments": {
            "get": operation(
                "The result of each experiment so far, on this node",
                {
                    "type": "object",
                    "properties": {
                        "experiments": {
                            "type": "array",
                            "items": structs.schema(Outcome),
                            "description": "The experiments of this node's configuration",
                        }
                    },
                },
            )
        },
        "/clicks": {
            "post": operation(
                "Count clicks on an answer in which an experiment mixed two rankings (an interleaved answer). Nothing "
                "is learned from this. " + OF_SENDERS,
                structs.schema(Clicked),
                body={JSON: structs.schema(Clicks)},
                status="202",
                token=True,
            )
        },
    }


def operators(structs: Structs) -> dict[str, Any]:
    """The state of the installation, and its dead letters."""
    return {
        "/status": {
            "get": operation(
                "The whole installation, as `omdml status` and `omdml doctor` see it. " + OF_OPERATORS, token=True
            )
        },
        "/letters": {
            "get": operation(
                "The newest dead letters. " + OF_OPERATORS, LETTERS, parameters=structs.query(Letters), token=True
            ),
        },
        "/letters/explain": {
            "get": operation(
                "One dead letter: what became of its event, and whether it would be learned now. " + OF_OPERATORS,
                parameters=structs.query(LetterAt),
                token=True,
            )
        },
        **{
            f"/letters/{verb}": {
                "post": operation(
                    f"{summary}. {OF_OPERATORS}", SETTLED, body={JSON: structs.schema(Settle)}, token=True
                )
            }
            for verb, summary in SETTLING.items()
        },
        "/session": {
            "post": operation(
                "Exchange a token for a cookie that may read. Browsers need it for pictures and streams, with which "
                "they send no token",
                status="204",
                token=True,
            )
        },
    }


def monitoring() -> dict[str, Any]:
    """Paths that supervisors and Prometheus ask: whether the node is alive and ready, and its metrics."""
    return {
        "/healthz": {"get": operation("Answers 200 if the node makes progress, 503 if it hangs")},
        "/readyz": {
            "get": operation(
                "Answers 200 if the models that are configured by their own names can answer, 503 otherwise. If "
                '`node.ready` is "any", one of them is enough'
            )
        },
        "/metrics": {"get": operation("Metrics for Prometheus", {"type": "string"}, kind="text/plain")},
        "/metrics/models": {
            "get": operation(
                "Metrics of single models for Prometheus",
                {"type": "string"},
                kind="text/plain",
                parameters=[
                    {
                        "name": "model",
                        "in": "query",
                        "schema": TEXT,
                        "description": "A model's name, in which `*` stands for any letters. Without it, all models, "
                        "at most 1,000",
                    }
                ],
            )
        },
    }


def pages() -> dict[str, Any]:
    """What programs and web pages fetch to use the node."""
    return {
        "/schema": {"get": operation("This document")},
        "/click.js": {
            "get": operation(
                "The script that sends the clicks of a web page",
                {"type": "string"},
                kind="text/javascript",
                tagged=True,
            )
        },
    }
