"""Filters as deploy/SEARCH.md tells them, item by item."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def matches(item: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Whether an item's attributes match a filter."""
    return all(matches_entry(item, name, value) for name, value in asked.items())


def matches_entry(item: dict[str, Any], name: str, value: Any) -> bool:
    if name == "all":
        return all(matches(item, part) for part in value)
    if name == "any":
        return any(matches(item, part) for part in value)
    if name == "not":
        return not matches(item, value)
    if not isinstance(value, dict):
        value = {"has" if name == "tags" else "eq": value}
    return all(holds(item.get(name), operator, operand) for operator, operand in value.items())


def holds(attribute: Any, operator: str, operand: Any) -> bool:
    if operator == "exists":
        return (attribute is not None) == operand
    if isinstance(attribute, str) and attribute.startswith("20"):
        attribute = instant(attribute)
        operand = [instant(choice) for choice in operand] if operator == "in" else instant(operand)
    if operator == "ne":
        return attribute is None or attribute != operand
    if attribute is None:
        return False
    if operator == "has":
        return any(choice in attribute for choice in (operand if isinstance(operand, list) else [operand]))
    if operator == "in":
        return attribute in operand
    return {
        "eq": attribute == operand,
        "lt": operator == "lt" and attribute < operand,
        "lte": operator == "lte" and attribute <= operand,
        "gt": operator == "gt" and attribute > operand,
        "gte": operator == "gte" and attribute >= operand,
    }[operator]


def instant(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
