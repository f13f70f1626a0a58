"""Conditions on attributes in LanceDB's SQL."""

from __future__ import annotations

from omdml.streams.indexes.lancedb.format import quoted
from omdml.streams.protocols.index import Compared, Condition

OPERATORS = {"eq": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


def sql_of(condition: Condition) -> str | None:
    """The SQL; None if LanceDB cannot express it."""
    if isinstance(condition, Compared):
        return compared(condition)
    parts = []
    for part in condition.parts:
        if (sql := sql_of(part)) is None:
            return None
        parts.append(sql)
    if condition.word == "not":
        # If an item has no such value, the part is NULL: it does not hold. COALESCE would read the column twice.
        return f"({parts[0]} IS NOT TRUE)"
    word = " AND " if condition.word == "all" else " OR "
    return f"({word.join(parts)})"


def compared(condition: Compared) -> str | None:
    """A comparison that is false or NULL if the item has no such value."""
    name, operator, values = condition
    if '"' in name or "\\" in name:
        # LanceDB's JSON paths have no way to write these characters.
        return None
    path = quoted(f'$."{name}"')
    if operator == "exists":
        return f"json_exists(attributes, {path})"
    if operator == "has":
        alternatives = [f"json_array_contains(attributes, {path}, {quoted(str(value))})" for value in values]
        return f"({' OR '.join(alternatives)})"
    # The functions that return numbers or truth values fail if another item has a text. This one makes texts of all.
    value_text, sign = f"json_get_string(attributes, {quoted(name)})", OPERATORS[operator]
    if isinstance(values[0], bool):
        alternatives = [f"{value_text} {sign} '{str(value).lower()}'" for value in values]
    elif isinstance(values[0], str):
        alternatives = [f"{value_text} {sign} {quoted(str(value))}" for value in values]
    else:
        alternatives = [f"TRY_CAST({value_text} AS DOUBLE) {sign} {value!r}" for value in values]
    # Whether the value is a text. This takes longest, so it comes last: only items that meet the rest are asked.
    like = "LIKE" if isinstance(values[0], str) else "NOT LIKE"
    return f"(({' OR '.join(alternatives)}) AND json_extract(attributes, {path}) {like} '\"%')"
