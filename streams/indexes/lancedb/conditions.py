"""Conditions on attributes in LanceDB's SQL."""

from __future__ import annotations

from omdml.streams.indexes.lancedb.format import quoted
from omdml.streams.protocols.index import Compared, Condition

OPERATORS = {"eq": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


def sql_of(condition: Condition) -> str | None:
    """The SQL; None if LanceDB cannot say it."""
    if isinstance(condition, Compared):
        return compared(condition)
    parts = []
    for part in condition.parts:
        if (said := sql_of(part)) is None:
            return None
        parts.append(said)
    if condition.word == "not":
        return f"NOT {parts[0]}"
    word = " AND " if condition.word == "all" else " OR "
    return f"({word.join(parts)})"


def compared(condition: Compared) -> str | None:
    """A comparison that is false, and not NULL, if the item has no such value."""
    name, operator, values = condition
    if '"' in name or "\\" in name:
        # Its paths have no way to write these.
        return None
    path = quoted(f'$."{name}"')
    if operator == "exists":
        return f"json_exists(attributes, {path})"
    if operator == "has":
        alternatives = [f"json_array_contains(attributes, {path}, {quoted(str(value))})" for value in values]
        return f"COALESCE({' OR '.join(alternatives)}, false)"
    # The value as JSON. The functions that return numbers fail if another item has a text, and the one that returns
    # texts makes texts of numbers.
    value_json = f"json_extract(attributes, {path})"
    sign = OPERATORS[operator]
    if isinstance(values[0], bool):
        alternatives = [f"{value_json} {sign} '{str(value).lower()}'" for value in values]
    elif isinstance(values[0], str):
        own = f"json_get_string(attributes, {quoted(name)})"
        alternatives = [f"({value_json} LIKE '\"%' AND {own} {sign} {quoted(str(value))})" for value in values]
    else:
        alternatives = [f"TRY_CAST({value_json} AS DOUBLE) {sign} {value!r}" for value in values]
    return f"COALESCE({' OR '.join(alternatives)}, false)"
