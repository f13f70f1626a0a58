"""Conditions on attributes in the SQL of PostgreSQL: each comparison is a predicate of ``jsonpath``."""

from __future__ import annotations

import json

from omdml.streams.protocols.index import Compared, Condition

OPERATORS = {"eq": "==", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


def sql_of(condition: Condition) -> tuple[str, list[str]] | None:
    """The SQL, and the values of its placeholders; None if PostgreSQL cannot express it."""
    if isinstance(condition, Compared):
        path = path_of(condition)
        # No text in PostgreSQL holds U+0000. A predicate about a value of another type is unknown, not false.
        return None if "\\u0000" in path else ("COALESCE(attributes @@ %s::jsonpath, false)", [path])
    parts = []
    for part in condition.parts:
        if (sql := sql_of(part)) is None:
            return None
        parts.append(sql)
    values = [value for _, part_values in parts for value in part_values]
    if condition.word == "not":
        return f"NOT {parts[0][0]}", values
    word = " AND " if condition.word == "all" else " OR "
    return f"({word.join(text for text, _ in parts)})", values


def path_of(condition: Compared) -> str:
    """A comparison as a predicate of ``jsonpath``."""
    name = f"$.{json.dumps(condition.name)}"
    if condition.operator == "exists":
        return f"exists({name})"
    if condition.operator == "has":
        return " || ".join(f"{name}[*] == {json.dumps(value)}" for value in condition.values)
    operator = OPERATORS[condition.operator]
    return " || ".join(f"{name} {operator} {json.dumps(value)}" for value in condition.values)
