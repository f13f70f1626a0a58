"""Filters as deploy/SEARCH.md tells them, item by item."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def matches(item: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Whether an item's attributes match a filter."""
    return all(entry(item, name, value) for name, value in asked.items())


def entry(item: dict[str, Any], name: str, value: Any) -> bool:
    if name == "all":
        return all(matches(item, part) for part in value)
    if name == "any":
        return any(matches(item, part) for part in value)
    if name == "not":
        return not matches(item, value)
    if not isinstance(value, dict):
        value = {"has" if name == "tags" else "eq": value}
    return all(holds(item.get(name), operator, operand) for operator, operand in value.items())


def holds(there: Any, operator: str, operand: Any) -> bool:
    if operator == "exists":
        return (there is not None) == operand
    if isinstance(there, str) and there.startswith("20"):
        there = instant(there)
        operand = [instant(choice) for choice in operand] if operator == "in" else instant(operand)
    if operator == "ne":
        return there is None or there != operand
    if there is None:
        return False
    if operator == "has":
        return any(choice in there for choice in (operand if isinstance(operand, list) else [operand]))
    if operator == "in":
        return there in operand
    return {
        "eq": there == operand,
        "lt": operator == "lt" and there < operand,
        "lte": operator == "lte" and there <= operand,
        "gt": operator == "gt" and there > operand,
        "gte": operator == "gte" and there >= operand,
    }[operator]


def instant(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
