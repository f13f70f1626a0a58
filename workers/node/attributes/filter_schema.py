"""The language of filters as schemas of the OpenAPI document; filters.py is what checks a filter."""

from __future__ import annotations

from omdml.workers.node.attributes.filters import MAX_CONDITIONS, MAX_DEPTH, MAX_VALUES

TEXT, NUMBER, TRUTH = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT, "maxItems": MAX_VALUES}
IN_ORDER, ANY_VALUE = {"anyOf": [NUMBER, TEXT]}, {"anyOf": [NUMBER, TEXT, TRUTH]}
FILTER = {"$ref": "#/components/schemas/Filter"}
FILTERS = {"type": "array", "items": FILTER, "minItems": 1}

SCHEMAS = {
    "Filter": {
        "type": "object",
        "description": "An item matches if every entry holds for it. Each name that is not one of these fields is the "
        "name of an attribute. Its value is an object of operators, or what the attribute must be equal to. If the "
        "attribute holds lists, the value is a text that the item's list must have, or a list of texts, one of which "
        f"must be in it. A filter has at most {MAX_CONDITIONS} conditions and {MAX_DEPTH} levels.",
        "properties": {
            "all": FILTERS | {"description": "Filters that the item must all match"},
            "any": FILTERS | {"description": "Filters of which the item must match at least one"},
            "not": FILTER | {"description": "A filter that the item must not match"},
        },
        "additionalProperties": {"anyOf": [TEXT, NUMBER, TRUTH, TEXTS, {"$ref": "#/components/schemas/Operators"}]},
    },
    "Operators": {
        "type": "object",
        "description": "All of these must hold for the value of an attribute.",
        "properties": {
            "eq": ANY_VALUE | {"description": "The value is equal to this one"},
            "ne": ANY_VALUE | {"description": "The value is not equal to this one, or the item has none"},
            "lt": IN_ORDER | {"description": "The value is below this one"},
            "lte": IN_ORDER | {"description": "The value is at most this one"},
            "gt": IN_ORDER | {"description": "The value is above this one"},
            "gte": IN_ORDER | {"description": "The value is at least this one"},
            "in": {
                "type": "array",
                "items": IN_ORDER,
                "maxItems": MAX_VALUES,
                "description": "The value is equal to one of these",
            },
            "has": {"anyOf": [TEXT, TEXTS], "description": "The item's list has this text, or one of these texts"},
            "exists": TRUTH | {"description": "true: the item has a value; false: it has none"},
        },
        "additionalProperties": False,
    },
}
