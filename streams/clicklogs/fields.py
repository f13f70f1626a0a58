"""Paths into a record: they say in which field of a format each part of a page is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from omdml.errors import ConfigurationError, FeedbackError

ClickRecord = Mapping[str, Any]
# An id of an event has at most so many characters.
MAX_ID = 512
# A value that begins with this is the same for every record.
CONSTANT = "="


class Fields:
    """Where a log has the parts of a page.

    Parameters
    ----------
    known
        The format's path of each part. A path is a series of names with dots between them. In a list of
        ``{"name": ..., "value": ...}`` a name leads to its value.
    changed
        Other paths, each ``PART=PATH``, or ``PART==VALUE`` for a value that is the same in every record.

    Raises
    ------
    ConfigurationError
        ``changed`` names a part that the format does not have, or is written in another way.
    """

    def __init__(self, known: Mapping[str, str], changed: Iterable[str] = ()) -> None:
        self._paths = dict(known)
        # Fields that somebody named, until a record has them.
        self._missed: dict[str, str] = {}
        for text in changed:
            part, equals, path = text.partition("=")
            if not equals or not path or part not in known:
                raise ConfigurationError(
                    f"--field {text}: expected PART=PATH or PART==VALUE, PART being one of {', '.join(known)}"
                )
            self._paths[part] = path
            if not path.startswith(CONSTANT):
                self._missed[part] = text

    @property
    def missed(self) -> list[str]:
        """Those of ``changed`` whose field no record had so far."""
        return list(self._missed.values())

    def path(self, part: str) -> str:
        """The path of this part; empty if the format has no such part."""
        return self._paths[part]

    def value(self, record: ClickRecord, part: str) -> Any:
        """This part of a record; None if the record lacks it."""
        path = self._paths[part]
        if path.startswith(CONSTANT):
            return path[1:]
        value: Any = record
        # A column of CSV may have dots in its name.
        for name in [path] if path in record else path.split("."):
            value = _named(value, name)
        if value is not None:
            self._missed.pop(part, None)
        return value

    def text(self, record: ClickRecord, part: str) -> str:
        """A required part as text; raises FeedbackError if it is missing or not an id."""
        value = self.value(record, part)
        if value is None or value == "":
            raise FeedbackError(
                f"`{self._paths[part]}` is missing: if the {part} is in another field, say so with --field {part}=PATH"
            )
        return as_id(value, self._paths[part])

    def optional(self, record: ClickRecord, part: str) -> str | None:
        """A part as text, None if the record lacks it; raises FeedbackError if it is not an id."""
        value = self.value(record, part) if self._paths[part] else None
        return None if value is None or value == "" else as_id(value, self._paths[part])


def _named(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, list):
        named = (entry for entry in value if isinstance(entry, Mapping) and entry.get("name") == name)
        return next(named, {}).get("value")
    return None


def as_id(value: object, path: str) -> str:
    """An id as text. Some logs have whole numbers as ids; raises FeedbackError for anything else."""
    if isinstance(value, str) and len(value) > MAX_ID:
        raise FeedbackError(f"`{path}` has {len(value):,} characters, expected an id of {MAX_ID} at most")
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise FeedbackError(f"`{path}` is {value!r:.80}, expected an id")


def seconds(value: object, path: str) -> float | None:
    """A time as seconds since the epoch: ISO 8601 (UTC if it names no zone), or milliseconds; raises FeedbackError."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, str) and not value.isdigit():
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if isinstance(value, str | int) and not isinstance(value, bool):
            return int(value) / 1000
    except (ValueError, OverflowError):
        pass
    expected = "expected a time like 2026-11-22T16:32:11Z, or milliseconds since 1970"
    raise FeedbackError(f"`{path}` is {value!r:.80}, {expected}")
