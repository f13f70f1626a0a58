"""What the OpenAPI document is made of: schemas of structs and of other answers, parameters, and responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from omdml.workers.node.attributes.filter_schema import FILTER
from omdml.workers.node.attributes.filter_schema import SCHEMAS as FILTER_SCHEMAS
from omdml.workers.node.http.meanings import EVERYWHERE, SECONDS, explain_fields
from omdml.workers.node.http.problems import PROBLEM
from omdml.workers.node.searching.answers import MAX_K
from omdml.workers.node.searching.compare import DEPTH

JSON = "application/json"
TEXT = {"type": "string"}
MODEL = TEXT | {"description": "The model"}
VERSION = {"type": "integer", "description": EVERYWHERE["version"]}
SERIAL = {"type": "integer", "description": EVERYWHERE["serial"]}
PINNED = {"type": "boolean", "description": EVERYWHERE["pinned"]}
OF_MODEL = [{"name": "model", "in": "path", "required": True, "schema": TEXT, "description": "The model"}]
OF_ITEM = [{"name": "id", "in": "path", "required": True, "schema": TEXT, "description": "The item's id"}]
MODELS = {
    "type": "object",
    "properties": {
        "models": {
            "type": "array",
            "items": {"$ref": "#/components/schemas/LiveModel"},
            "description": "Each model that is configured by name or loaded",
        },
        "patterns": {
            "type": "array",
            "items": TEXT,
            "description": "The patterns of names for which the node answers as well",
        },
        "stale_seconds": {
            "type": "number",
            "description": "For how many seconds the most outdated model has not been up to date; 0 if all are",
        },
    },
}
LIVE_MODEL = {
    "type": "object",
    "description": "What answers searches of a model. Fields that would say nothing are missing.",
    "required": ["model", "ready"],
    "properties": {
        "model": MODEL,
        "ready": {"type": "boolean", "description": "Whether the model can answer"},
        "version": VERSION,
        "serial": SERIAL,
        "pinned": PINNED,
        "learner": {"type": "string", "description": "How the model learns, such as `dca`"},
        "generation": {"type": "string", "description": "The generation of its catalogue"},
        "items": {"type": "integer", "description": "The number of its items"},
        "tasks": {"type": "array", "items": TEXT, "description": "The names of its tasks, if it has several"},
        "live_since": {"type": "number", "description": f"When this node began to answer with it, {SECONDS}"},
        "complete": {"type": "boolean", "description": "false while the gallery is that of a version before"},
        "freshness": {
            "description": "Seconds from a click until answers have learned from it: `p50_s` and `p99_s` of the last "
            "`count` versions; null before the first",
            "anyOf": [
                {
                    "type": "object",
                    "properties": {
                        "p50_s": {"type": "number"},
                        "p99_s": {"type": "number"},
                        "count": {"type": "integer"},
                    },
                },
                {"type": "null"},
            ],
        },
        "parent": {"type": "string", "description": "The model that answers instead, because this one has no version"},
        "begins_with": {"type": "string", "description": "The model's parent by configuration, if it has one"},
        "candidates": {
            "type": "object",
            "description": "If an index in a vector database proposes the items to compare: which `index`, the "
            "`version` that it holds, and why it is `away`, if it is",
            "properties": {"index": TEXT, "version": {"type": ["integer", "null"]}, "away": TEXT},
        },
        "refused": {
            "type": "object",
            "description": "If the version that is `live` cannot be served: the `reason`, and the version that answers "
            "instead (`serving`; null: none)",
            "properties": {
                "live": {"type": "integer"},
                "serving": {"type": ["integer", "null"]},
                "reason": TEXT,
            },
        },
        "store_fell_back": {
            "type": "object",
            "description": "If the store has an older version than this node: that of the `store` (null: none), and "
            "the one that answers (`serving`)",
            "properties": {"store": {"type": ["integer", "null"]}, "serving": {"type": "integer"}},
        },
    },
}
HISTORY_LINE = {
    "type": "object",
    "description": "What happened to a version of a model.",
    "required": ["at", "what", "version"],
    "properties": {
        "at": {"type": "number", "description": f"When it happened, {SECONDS}"},
        "what": {
            "type": "string",
            "description": "Such as `published`, `held`, `drift` or `rolled back`",
        },
        "version": VERSION,
        "serial": SERIAL,
        "pinned": PINNED,
        "reason": {"type": "string", "description": "Why, if a reason is known"},
        "actor": {"type": "string", "description": "Who moved the version: the name of a token, or a user"},
        "digest": {"type": "string", "description": "A checksum of the version"},
        "epoch": {"type": "string", "description": "The epoch of the worker that published the version"},
    },
}
LETTERS = {
    "type": "object",
    "properties": {
        "letters": {
            "type": "array",
            "items": {"type": "object"},
            "description": "Newest first: `position`, `at`, `reason`, `model`, `error` (a sentence), `since_then` "
            "(`sent again`, `dismissed` or empty) and `event`",
        },
        "total": {"type": "integer", "description": "How many letters were asked for, those not listed included"},
        "open": {"type": "integer", "description": "How many of these were neither sent again nor dismissed"},
        "reasons": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "How many letters there are, by reason",
        },
        "models": {"type": "array", "items": TEXT, "description": "The models that have letters"},
        "whole": {"type": "boolean", "description": "false: there are older letters that were not looked at"},
    },
}
LINES = {
    "type": "object",
    "properties": {
        "model": MODEL,
        "lines": {
            "type": "array",
            "items": {"$ref": "#/components/schemas/HistoryLine"},
            "description": "What happened",
        },
    },
}
ITEMS = {
    "type": "object",
    "properties": {
        "model": MODEL,
        "items": {"type": "array", "items": TEXT, "description": "The ids of the items"},
        "total": {"type": "integer", "description": "How many items fit `id` and `find`"},
        "position": {"type": "integer", "description": "How many of the catalogue's changes this node answers with"},
        "pictures": {"type": "boolean", "description": "Whether this node has pictures of the items"},
        "attributes": {"type": "array", "items": TEXT, "description": "What `fields` may name, also that of a search"},
        "values": {
            "type": "array",
            "description": "If `id` or `fields` is given: the attributes of each item, as far as it has them, by name",
            "items": {"type": "object"},
        },
        "describes": {
            "type": "object",
            "description": "What a search may bring instead of an item: the names of its columns of text, whether it "
            "may bring a picture, and the number of dimensions of a raw vector of each modality",
            "properties": {
                "texts": {"type": "array", "items": TEXT},
                "picture": {"type": "boolean"},
                "vectors": {"type": "object", "additionalProperties": {"type": "integer"}},
            },
        },
        "labels": {
            "type": "array",
            "description": "If items have the attribute `label`: the label of each item; null: it has none",
            "items": {"type": ["string", "null"]},
        },
        "atlas": {
            "type": "object",
            "description": "If there are thumbnails: the length of a thumbnail's side in pixels, and the number of "
            "thumbnails in a line of an atlas",
            "properties": {"side": {"type": "integer"}, "cells": {"type": "integer"}},
        },
        "cells": {
            "type": "array",
            "description": "For each item: `first` of the atlas that has its thumbnail, and its place there, counted "
            "from 0, line by line; null: it has no thumbnail",
            "items": {"type": ["array", "null"], "items": {"type": "integer"}},
        },
    },
}
MOVED = {
    "type": "object",
    "properties": {
        "model": MODEL,
        "version": {"type": "integer", "description": "The version that is live now"},
        "serial": {"type": "integer", "description": "A number that rises each time another version goes live"},
        "pinned": {"type": "boolean", "description": "Whether this version stays live until it is unpinned"},
    },
}
SETTLED = {
    "type": "object",
    "properties": {
        "settled": {"type": "integer", "description": "How many letters were settled: sent again, or dismissed"},
        "left": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "How many were left as they are, by the reason",
        },
    },
}
ERROR = {
    "type": "object",
    "description": "A problem as RFC 9457 describes it.",
    "required": ["title", "status", "detail", "error", "message"],
    "properties": {
        "title": {"type": "string", "description": "What the status means"},
        "status": {"type": "integer", "description": "The HTTP status of the response"},
        "detail": {
            "type": "string",
            "description": "The same as `message`, under the name that clients of RFC 9457 know",
        },
        "error": {"type": "string", "description": "A code that never changes, for programs"},
        "message": {"type": "string"},
        "version": {"type": "integer", "description": "With the error `behind`: the version that answers"},
        "number": {"type": "integer", "description": "The first bad event of `POST /feedback`, counted from 1"},
        "bad": {"type": "integer", "description": "How many events of `POST /feedback` are bad"},
        "errors": {
            "type": "array",
            "items": {"type": "object"},
            "description": "The first bad events of `POST /feedback`, at most 20, each with `number`, `error` and "
            "`message`",
        },
    },
}
REFUSED = {
    "description": "refused; `error` and `message` say why",
    "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Error"}}},
}
BEHIND = {
    "503": REFUSED
    | {
        "description": "the node has no version, or no version as new as `min_version`",
        "headers": {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds; with the error `behind`"}},
    }
}

# Bodies whose unknown fields and limits the node checks itself, because its messages help more.
CLOSED = ("Search", "Move", "Clicks")
OF_PAGES = {"k": {"minimum": 1, "maximum": MAX_K}, "offset": {"minimum": 0, "maximum": MAX_K - 1}}
LIMITS = {
    "Search": OF_PAGES,
    "ItemSearch": OF_PAGES,
    "Compare": {"k": {"minimum": 1, "maximum": DEPTH}},
}
# A client that has an answer need not get it again.
IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "schema": TEXT,
    "description": "The `ETag` of an earlier answer to the same request. If the answer would be the same, it is 304.",
}
ETAG = {"ETag": {"schema": TEXT, "description": "Changes if the answer may have changed"}}
UNCHANGED = {"304": {"description": "nothing has changed since the answer with this `ETag`", "headers": ETAG}}


def operation(
    summary: str,
    answer: dict[str, Any] | None = None,
    *,
    kind: str = JSON,
    status: str = "200",
    parameters: list[dict[str, Any]] | None = None,
    body: dict[str, dict[str, Any]] | None = None,
    optional: bool = False,
    token: bool = False,
    tagged: bool = False,
    more: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One method of one path.

    Parameters
    ----------
    body
        A schema for each media type.
    optional
        Whether a request may leave out the body.
    token
        Whether a request needs the node's token, if the node has one.
    tagged
        Whether the answer has an ``ETag``.
    more
        Further responses, by status.
    """
    success: dict[str, Any] = {"description": "done"}
    # An answer 204 has no body.
    if status != "204":
        success["content"] = {kind: {"schema": answer or {"type": "object"}}}
    entry: dict[str, Any] = {"summary": summary, "responses": {status: success}}
    if tagged:
        success["headers"] = ETAG
        entry["responses"] |= UNCHANGED
        parameters = [*(parameters or []), IF_NONE_MATCH]
    entry["responses"] |= more or {}
    if parameters:
        entry["parameters"] = parameters
    if body:
        content = {media: {"schema": schema} for media, schema in body.items()}
        entry["requestBody"] = {"required": not optional, "content": content}
    if token:
        # A node without tokens asks for none, which the empty entry says.
        entry["security"] = [{"token": []}, {}]
        entry["responses"]["401"] = REFUSED | {"description": "the token is missing or wrong"}
    entry["responses"]["default"] = REFUSED
    return entry


def parameters(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """A struct's fields as query parameters."""
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": field}
        for name, field in schema["properties"].items()
    ]


def shorten_tuples(part: dict[str, Any]) -> None:
    """Describe a tuple of equal types as a list of its length: generators of clients do not read ``items: false``."""
    for option in part.get("properties", {}).values():
        kinds = option.get("prefixItems", [])
        if kinds and all(kind == kinds[0] for kind in kinds):
            del option["prefixItems"]
            option["items"] = kinds[0]


class Structs:
    """The structs that check requests and make answers, as the document describes them.

    Parameters
    ----------
    in_bodies, in_queries
        Those of bodies and answers, and those of query strings.

    Attributes
    ----------
    components
        The schemas that the others refer to, by name.
    """

    def __init__(self, in_bodies: Sequence[Any], in_queries: Sequence[type]) -> None:
        described, components = msgspec.json.schema_components(
            [*in_bodies, *in_queries], ref_template="#/components/schemas/{name}"
        )
        for part in components.values():
            shorten_tuples(part)
        for name in CLOSED:
            components[name]["additionalProperties"] = False
        for name, limits in LIMITS.items():
            for field, limit in limits.items():
                components[name]["properties"][field] |= limit
        components |= {"Error": ERROR, "LiveModel": LIVE_MODEL, "HistoryLine": HISTORY_LINE, **FILTER_SCHEMAS}
        components["Search"]["properties"]["filter"]["anyOf"] = [FILTER, {"type": "null"}]
        explain_fields(components)
        # A query string is described field by field, so its struct is no component.
        self._in_queries: dict[type, list[dict[str, Any]]] = {
            struct: parameters(components.pop(struct.__name__)) for struct in in_queries
        }
        self._in_bodies = dict(zip(in_bodies, described[: len(in_bodies)], strict=True))
        self.components = components

    def schema(self, struct: Any) -> dict[str, Any]:
        """The schema of a body or an answer."""
        return self._in_bodies[struct]

    def query(self, struct: type) -> list[dict[str, Any]]:
        """The parameters of a query string."""
        return self._in_queries[struct]
