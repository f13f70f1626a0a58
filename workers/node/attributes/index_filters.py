"""The part of a filter that an index in a vector database can apply. What matches the filter matches this part, too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from omdml.streams.protocols.index import Compared, Condition, Joined, PushedFilter
from omdml.workers.node.attributes.columns import Dates
from omdml.workers.node.attributes.filters import WORDS


def pushed_down(asked: Mapping[str, Any], columns: Mapping[str, Any]) -> PushedFilter | None:
    """The part of a valid filter that an index can apply; None if there is none.

    ``columns`` are the attributes by name. Dates are left out: an index has them as texts, and two texts may be the
    same instant.
    """
    parts = [part for name, value in asked.items() if (part := _entry(name, value, columns))]
    return PushedFilter(Joined("all", tuple(parts)), len(parts) == len(asked)) if parts else None


def _entry(name: str, value: Any, columns: Mapping[str, Any]) -> Condition | None:
    if name in WORDS:
        inner = [pushed_down(part, columns) for part in (value if isinstance(value, list) else [value])]
        conditions = tuple(part.condition for part in inner if part and part.whole)
        return Joined(name, conditions) if len(conditions) == len(inner) else None
    column = columns[name]
    if isinstance(column, Dates):
        return None
    if not isinstance(value, dict):
        value = {"eq" if "eq" in column.expected else "has": value}
    parts = tuple(part for operator, operand in value.items() if (part := _condition(name, operator, operand)))
    return Joined("all", parts) if parts and len(parts) == len(value) else None


def _condition(name: str, operator: str, operand: Any) -> Condition | None:
    if operator == "exists":
        exists = Compared(name, "exists")
        return exists if operand else Joined("not", (exists,))
    operands = operand if isinstance(operand, list) else [operand]
    values = tuple(value for operand_value in operands if (value := _value(operand_value)) is not None)
    if not values or len(values) < len(operands):
        return None
    if operator == "ne":
        return Joined("not", (Compared(name, "eq", values),))
    return Compared(name, "eq" if operator == "in" else operator, values)


def _value(value: Any) -> float | str | bool | None:
    """The value as an index stores it; None if it cannot store such a value."""
    if isinstance(value, bool | str):
        return value
    number = float(value)
    return number if math.isfinite(number) else None
