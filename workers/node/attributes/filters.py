"""The language of the field ``filter`` of a search; deploy/SEARCH.md explains it to users.

A filter is a JSON object, and all of its entries must hold: ``all`` and ``any`` take lists of filters, ``not`` takes
one, and every other name is an attribute, with a value to be equal to or an object of operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from omdml.errors import quoted, shortened
from omdml.messages.suggestion import suggestion
from omdml.workers.node.attributes.columns import Column, Mask
from omdml.workers.node.searching.options import SearchError

WORDS = ("all", "any", "not")
# How deep filters may be nested, how many conditions they may have in all, and how many values a list may have.
MAX_DEPTH, MAX_CONDITIONS, MAX_VALUES = 16, 256, 1000


class Filter:
    """One filter over columns of ``count`` rows.

    Parameters
    ----------
    columns
        The attributes by name.

    Raises
    ------
    SearchError
        From :meth:`mask`, ``bad_filter``: what is wrong, and where in the filter.
    """

    def __init__(self, columns: Mapping[str, Column], count: int) -> None:
        self._columns, self._count, self._conditions = columns, count, 0

    def mask(self, asked: Any, path: str = "filter", depth: int = 0) -> Mask:
        """A mask (n,) of the rows that match a filter."""
        if depth > MAX_DEPTH:
            raise bad(path, f"deeper than {MAX_DEPTH} filters within filters: make it flatter")
        if not isinstance(asked, dict):
            raise bad(path, f'got {quoted(asked)}, expected an object such as {{"price": {{"lt": 20}}}}')
        matching = np.ones(self._count, bool)
        for name, value in asked.items():
            matching &= self._entry(name, value, f"{path}.{name}", depth)
        return matching

    def _entry(self, name: str, value: Any, path: str, depth: int) -> Mask:
        if name == "not":
            return ~self.mask(value, path, depth + 1)
        if name in WORDS:
            if not isinstance(value, list) or not value:
                raise bad(path, f"got {quoted(value)}, expected a list of at least one filter")
            masks = [self.mask(part, f"{path}[{place}]", depth + 1) for place, part in enumerate(value)]
            joined: Mask = np.logical_and.reduce(masks) if name == "all" else np.logical_or.reduce(masks)
            return joined
        if name not in self._columns:
            raise bad(path, f"no attribute {name!r}{suggestion(name, self._columns)}")
        column = self._columns[name]
        if not isinstance(value, dict):
            return self._condition(column, "eq" if "eq" in column.expected else "has", value, path)
        matching = np.ones(self._count, bool)
        for operator, operand in value.items():
            matching &= self._condition(column, operator, operand, f"{path}.{operator}")
        return matching

    def _condition(self, column: Column, operator: str, operand: Any, path: str) -> Mask:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise bad(path, f"more than {MAX_CONDITIONS} conditions in all: use `in` for many values")
        if operator not in column.expected:
            raise bad(path, f"no operator {operator!r} for this attribute, expected {', '.join(column.expected)}")
        if isinstance(operand, list) and len(operand) > MAX_VALUES:
            raise bad(path, f"{len(operand):,} values, expected at most {MAX_VALUES:,}")
        try:
            return column.matches(operator, operand)
        except TypeError:
            several = isinstance(operand, list) and operator == "eq" and "in" in column.expected
            hint = '; {"in": [...]} asks for one of several' if several else ""
            raise bad(path, f"got {quoted(operand)}, expected {column.expected[operator]}{hint}") from None


def bad(path: str, message: str) -> SearchError:
    """The error about a part of a filter."""
    return SearchError(f"{shortened(path)}: {message}", "bad_filter")
