"""The values of one attribute for all items, by kind of value, and which items meet a condition."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
DATE = re.compile(r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}|$)")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# How many parsed dates are remembered, because many items have the same ones.
REMEMBERED = 65_536
ORDER = ("lt", "lte", "gt", "gte")
COMPARE: Mapping[str, Callable[..., Mask]] = {
    "eq": np.equal, "lt": np.less, "lte": np.less_equal, "gt": np.greater, "gte": np.greater_equal,
}  # fmt: skip


class Column(Protocol):
    """One attribute of all items; row i belongs to item i.

    An item without a value matches ``ne`` and ``{"exists": false}``, and no other operator.

    Attributes
    ----------
    expected
        What an operand must be, by operator.
    """

    expected: Mapping[str, str]

    def matches(self, operator: str, operand: Any) -> Mask:
        """Which rows match (n,); TypeError if the operand is not what is expected."""

    def value(self, row: int) -> Any:
        """The value of one row; None if it has none."""


class Numbers:
    """A column of numbers; NaN if an item has none."""

    expected: ClassVar = {
        **dict.fromkeys(("eq", "ne", *ORDER), "a number"),
        "in": "a list of numbers",
        "exists": "true or false",
    }

    def __init__(self, count: int, rows: Sequence[int], values: Sequence[float]) -> None:
        self.values = np.full(count, np.nan)
        self.values[np.asarray(rows, np.int64)] = values

    def matches(self, operator: str, operand: Any) -> Mask:
        if operator == "exists":
            return existing(~np.isnan(self.values), operand)
        wanted = [number(value) for value in (listed(operand) if operator == "in" else [operand])]
        if operator == "in":
            return np.isin(self.values, wanted)
        if operator == "ne":
            return ~np.equal(self.values, wanted[0])
        return COMPARE[operator](self.values, wanted[0])

    def value(self, row: int) -> float | int | None:
        value = float(self.values[row])
        if np.isnan(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else value


class Flags:
    """A column of true and false; -1 if an item has neither."""

    expected: ClassVar = dict.fromkeys(("eq", "ne", "exists"), "true or false")

    def __init__(self, count: int, rows: Sequence[int], values: Sequence[bool]) -> None:
        self.values = np.full(count, -1, np.int8)
        self.values[np.asarray(rows, np.int64)] = values

    def matches(self, operator: str, operand: Any) -> Mask:
        if operator == "exists":
            return existing(self.values >= 0, operand)
        same: Mask = self.values == require(operand, bool)
        return ~same if operator == "ne" else same

    def value(self, row: int) -> bool | None:
        return None if self.values[row] < 0 else bool(self.values[row])


class Texts:
    """A column of texts, kept as places in the sorted list of all texts; -1 if an item has none."""

    expected: ClassVar = {
        **dict.fromkeys(("eq", "ne", *ORDER), "a text"),
        "in": "a list of texts",
        "exists": "true or false",
    }

    def __init__(self, count: int, rows: Sequence[int], values: Sequence[str]) -> None:
        self.words = sorted(set(values))
        places = {word: place for place, word in enumerate(self.words)}
        self.codes = np.full(count, -1, np.int32)
        self.codes[np.asarray(rows, np.int64)] = [places[value] for value in values]

    def matches(self, operator: str, operand: Any) -> Mask:
        if operator == "exists":
            return existing(self.codes >= 0, operand)
        if operator == "in":
            return np.isin(self.codes, codes_of(self.words, listed(operand)))
        text = require(operand, str)
        low, high = bisect.bisect_left(self.words, text), bisect.bisect_right(self.words, text)
        if operator in ("eq", "ne"):
            same: Mask = (self.codes >= low) & (self.codes < high)
            return ~same if operator == "ne" else same
        begin, end = {
            "lt": (0, low), "lte": (0, high), "gt": (high, len(self.words)), "gte": (low, len(self.words)),
        }[operator]  # fmt: skip
        within: Mask = (self.codes >= begin) & (self.codes < end)
        return within

    def value(self, row: int) -> str | None:
        return None if self.codes[row] < 0 else self.words[self.codes[row]]


class Dates:
    """A column of dates and times. They are compared as instants, and answers show them as they were written.

    The instant of an item without a date is the smallest int64.
    """

    expected: ClassVar = {
        **dict.fromkeys(("eq", "ne", *ORDER), "a date such as 2026-11-23, or 2026-11-23T18:30:00+01:00"),
        "in": "a list of dates such as 2026-11-23",
        "exists": "true or false",
    }

    def __init__(self, count: int, rows: Sequence[int], values: Sequence[str]) -> None:
        self._texts = dict(zip(rows, values, strict=True))
        self.instants = np.full(count, np.iinfo(np.int64).min)
        self.instants[np.asarray(rows, np.int64)] = [instant(value) for value in values]

    def matches(self, operator: str, operand: Any) -> Mask:
        present: Mask = self.instants > np.iinfo(np.int64).min
        if operator == "exists":
            return existing(present, operand)
        wanted = [date_of(value) for value in (listed(operand) if operator == "in" else [operand])]
        if operator == "in":
            return np.isin(self.instants, wanted)
        if operator == "ne":
            return ~np.equal(self.instants, wanted[0])
        return present & COMPARE[operator](self.instants, wanted[0])

    def value(self, row: int) -> str | None:
        return self._texts.get(row)

    @cached_property
    def as_texts(self) -> Texts:
        """The same values, compared as texts."""
        return Texts(len(self.instants), list(self._texts), list(self._texts.values()))


class Lists:
    """A column of lists of texts.

    ``codes`` holds the texts of all rows one after the other, and ``owners`` the row that each belongs to.
    """

    expected: ClassVar = {"has": "a text, or a list of texts of which one is enough", "exists": "true or false"}

    def __init__(self, count: int, rows: Sequence[int], values: Sequence[Sequence[str]]) -> None:
        self.words = sorted({word for value in values for word in value})
        places = {word: place for place, word in enumerate(self.words)}
        lengths = np.zeros(count, np.int64)
        lengths[np.asarray(rows, np.int64)] = [len(value) for value in values]
        ends = np.cumsum(lengths)
        self.begins, self.owners = ends - lengths, np.repeat(np.arange(count), lengths)
        self.codes = np.empty(int(lengths.sum()), np.int32)
        for row, value in zip(rows, values, strict=True):
            self.codes[self.begins[row] : ends[row]] = [places[word] for word in value]
        self.there = np.zeros(count, bool)
        self.there[np.asarray(rows, np.int64)] = True

    def matches(self, operator: str, operand: Any) -> Mask:
        if operator == "exists":
            return existing(self.there, operand)
        wanted = codes_of(self.words, operand if isinstance(operand, list) else [operand])
        mask = np.zeros(len(self.there), bool)
        mask[self.owners[np.isin(self.codes, wanted)]] = True
        return mask

    def value(self, row: int) -> list[str] | None:
        if not self.there[row]:
            return None
        begin = int(self.begins[row])
        end = begin + int(np.searchsorted(self.owners, row, "right") - np.searchsorted(self.owners, row, "left"))
        return [self.words[code] for code in self.codes[begin:end]]


def texts_or_dates(count: int, rows: Sequence[int], values: Sequence[str]) -> Texts | Dates:
    """A column of dates if every one of the texts is a date, otherwise of texts."""
    kind = Dates if values and all(instant(value) is not None for value in values) else Texts
    return kind(count, rows, values)


@lru_cache(REMEMBERED)
def instant(text: str) -> int | None:
    """Microseconds since 1970 in UTC of a date, or of a date and time, in ISO 8601. A time without a zone is in UTC.

    None for any other text, and for a year alone.

    Examples
    --------
    >>> instant("1970-01-01T01:00:01+01:00"), instant("1970-01-02"), instant("2026")
    (1000000, 86400000000, None)
    """
    if not DATE.match(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - EPOCH) // timedelta(microseconds=1)


def date_of(operand: Any) -> int:
    """The operand as an instant; TypeError if it is no date."""
    time = instant(require(operand, str))
    if time is None:
        raise TypeError
    return time


def require(operand: Any, *kinds: type) -> Any:
    """The operand if it is of one of these kinds, otherwise TypeError. True and false do not count as numbers."""
    if not isinstance(operand, kinds) or (isinstance(operand, bool) and bool not in kinds):
        raise TypeError
    return operand


def number(operand: Any) -> float:
    """The operand if it is a number that can be compared, otherwise TypeError."""
    try:
        return float(require(operand, int, float))
    except OverflowError:
        raise TypeError from None


def listed(operand: Any) -> list[Any]:
    """The operand if it is a list, otherwise TypeError."""
    return list(require(operand, list))


def existing(present: Mask, operand: Any) -> Mask:
    """Rows that have a value, or those that have none."""
    return present if require(operand, bool) else ~present


def codes_of(words: list[str], texts: list[Any]) -> NDArray[np.int32]:
    """The places of these texts in the sorted list; texts that are not in it are left out."""
    codes = []
    for text in texts:
        place = bisect.bisect_left(words, require(text, str))
        if place < len(words) and words[place] == text:
            codes.append(place)
    return np.array(codes, np.int32)
