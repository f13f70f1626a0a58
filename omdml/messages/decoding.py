"""Sentences about data that cannot be decoded: where the fault is, what was expected, what came, and what to do.

They are made from the messages of msgspec, such as ``Expected `int`, got `str` - at `$.k```.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from omdml.errors import quoted, shortened
from omdml.messages.suggestion import nearest, suggestion

# What msgspec calls the kinds of values.
KINDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "bytes": "text in base64",
    "array": "a list",
    "object": "an object",
    "null": "nothing",
}
# What the length of a kind of value counts.
COUNTED = {"str": ("character", "characters"), "array": ("entry", "entries"), "object": ("entry", "entries")}
BYTES = ("byte", "bytes")
BOUNDS = {">=": "at least ", "<=": "at most ", "": ""}
MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
INVALID = re.compile(r"Invalid (?:enum )?value '?(.*?)'?", re.DOTALL)
# A path begins with this if a name in an object does not fit, and not the value under the name.
KEY = "key` in `"
# How many of the bytes that cannot be decoded an error shows.
SHOWN_BYTES = 20
# A step of a path: the name of a field, or the number of an entry.
STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


def misfit(
    error: Exception, where: str, data: Any = None, known: Iterable[str] = (), choices: Iterable[str] = ()
) -> str:
    """Say what does not fit.

    Parameters
    ----------
    error
        What msgspec raised.
    where
        What the data is, such as ``event`` or ``line 3``.
    data
        The data itself as plain Python objects, None if it is not known. The message quotes the value from it.
    known
        The names that the fields of the data can have.
    choices
        The texts that the field at the place of the error can hold, if these are few.

    Examples
    --------
    >>> class Search(msgspec.Struct):
    ...     item: str
    ...     k: int
    >>> def show(data):
    ...     try:
    ...         msgspec.convert(data, Search)
    ...     except msgspec.ValidationError as error:
    ...         print(misfit(error, "query", data, Search.__struct_fields__))
    >>> show({"item": "a", "k": "3"})
    query: field 'k': expected a whole number, got text '3'
    >>> show({"itme": "a", "k": 3})
    query: it has no field 'item', but 'itme': did you mean 'item'?
    """
    complaint, _, path = str(error).partition(" - at `")
    place = place_of(error)
    if path.startswith(KEY):
        complaint += " as a name"
    field, inside, _ = place.partition("[...]")
    subject = f"{where}: {'in ' if inside else ''}field {shortened(field)!r}" if field else where
    if inside and not field:
        subject += ": one of its values"
    if match := MISSING.fullmatch(complaint):
        return f"{subject}: it has no field {match[1]!r}{_missing(match[1], data, place, known, choices)}"
    if match := UNKNOWN.fullmatch(complaint):
        return f"{subject}: no field {shortened(match[1])!r}{'' if place else suggestion(match[1], known)}"
    if match := INVALID.fullmatch(complaint):
        return f"{subject}: {quoted(match[1])} is unknown{suggestion(match[1], choices) if choices else ''}"
    value = _value_at(data, place)
    shown = f" {quoted(value, 60)}" if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    if match := re.fullmatch(r"Expected `(.+)`, got `(.+)`", complaint):
        return f"{subject}: expected {in_words(match[1])}, got {in_words(match[2])}{shown}"
    got = f", got{shown}" if shown else ""
    if match := re.fullmatch(r"Expected `(.+)` of length (?:(>=|<=) )?(\d+)", complaint):
        kind, bound, length = match.groups()
        count = f", got {len(value):,}" if isinstance(value, str | list | dict) else ""
        counted = COUNTED.get(kind, BYTES)[length != "1"]
        expected = f"{in_words(kind)} of {BOUNDS[bound or '']}{int(length):,} {counted}"
        return f"{subject}: expected {expected}{count}"
    if match := re.fullmatch(r"Expected `(\w+)` (>=|<=|>|<) (\S+)", complaint):
        return f"{subject}: expected {in_words(match[1])} {match[2]} {match[3]}{got}"
    if match := re.fullmatch(r"Expected `(.+)`( as a name)?", complaint):
        return f"{subject}: expected {in_words(match[1])}{match[2] or ''}"
    if complaint == "Number out of range":
        return f"{subject}: expected a smaller number{got}"
    if complaint == "Invalid base64 encoded string":
        return f"{subject}: expected text in base64, but it has other characters"
    return f"{subject}: {shortened(complaint)}"


def undecodable(error: Exception, payload: bytes, where: str, known: Iterable[str] = ()) -> str:
    """Say why these bytes of JSON cannot be decoded, or do not fit; ``known`` are the names of the fields."""
    if isinstance(error, msgspec.ValidationError):
        return misfit(error, where, plain_data(payload), known)
    return f"{where}: {malformed(error, payload)}"


def malformed(error: Exception, payload: bytes) -> str:
    """Say what a decoder found wrong with these bytes, with the text at which it stopped."""
    place = re.search(r"\(byte (\d+)\)$", str(error))
    if place is None:
        return shortened(str(error))
    start = int(place[1])
    text = payload[start : start + SHOWN_BYTES].decode(errors="replace")
    hint = ": JSON has no NaN and no Infinity" if text.startswith(("NaN", "Infinity")) else ""
    return f"{error}, got {text!r}{hint}"


def plain_data(payload: bytes, decode: Callable[[bytes], Any] = msgspec.json.decode) -> Any:
    """The bytes as plain Python objects; None if they are malformed, for example after the value that does not fit."""
    try:
        return decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def place_of(error: Exception) -> str:
    """The path of the field that does not fit; empty if it is the data as a whole."""
    path = str(error).partition(" - at `")[2].removeprefix(KEY)
    return path.removesuffix("`").removeprefix("$").removeprefix(".")


def in_words(kinds: str) -> str:
    """Kinds of values in words.

    Examples
    --------
    >>> in_words("float | null"), in_words("bool | int | float | str")
    ('a number or nothing', 'true or false, a number or text')
    """
    names = kinds.split(" | ")
    # A number may be a whole number.
    words = [KINDS.get(kind, kind) for kind in names if kind != "int" or "float" not in names]
    return " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def _missing(name: str, data: Any, place: str, known: Iterable[str], choices: Iterable[str]) -> str:
    """The end of the sentence about a field that is missing: the mistyped field, or what to do."""
    unknown = set(data) - set(known) if isinstance(data, dict) and not place else set()
    if near := nearest(name, sorted(map(str, unknown))):
        return f", but {near!r}: did you mean {name!r}?"
    expected = f", expected one of {', '.join(choices)}" if choices else ""
    return f", which is needed{expected}: add it"


def _value_at(data: Any, place: str) -> Any:
    """The value at this path; None if the path leads nowhere, or does not say which entry (``[...]``)."""
    if "[...]" in place:
        return None
    for name, number in STEP.findall(place):
        try:
            data = data[int(number)] if number else data[name]
        except (KeyError, IndexError, TypeError):
            return None
    return data
