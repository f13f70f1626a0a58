"""Addresses of stores as text: which servers they name, and how they are shown. Needs no client."""

from __future__ import annotations

from urllib.parse import unquote

from omdml.errors import quoted

# Our schemes, and what redis-py calls them.
SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}

# A value with at least so many characters may be a secret.
LEAST_SECRET = 16


def masked(url: str) -> str:
    """The URL without user, password and query."""
    scheme, separator, rest = url.partition("://")
    rest, sign, fragment = rest.rpartition("#")
    rest, name = (rest, sign + fragment) if sign and "@" not in fragment else (rest + sign + fragment, "")
    place, question, query = rest.partition("?")
    # A password may hold a question mark, and an option's value an @: nobody can tell which it is.
    if question and "@" in query:
        return f"{scheme}{separator}***{name}"
    return f"{scheme}{separator}{place.rpartition('@')[2]}{name}" if separator else url


def shown(value: object) -> str:
    """A value that an option cannot have, as an error may tell it: not at all if it may be a secret."""
    text = value if isinstance(value, str) else ""
    if "://" in text:
        return repr(masked(text))
    return "not shown, because it may be a secret" if "@" in text or len(text) >= LEAST_SECRET else quoted(value)


def without_prefix(url: str) -> tuple[str, str | None]:
    """The URL without its ``prefix=``, and that; None if it has none. Other options are redis-py's."""
    start, _, query = url.partition("?")
    options = [option for option in query.split("&") if option]
    prefixes = [unquote(option.removeprefix("prefix=")) for option in options if option.startswith("prefix=")]
    others = "&".join(option for option in options if not option.startswith("prefix="))
    return f"{start}?{others}" if others else start, prefixes[-1] if prefixes else None
