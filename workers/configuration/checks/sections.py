"""What a section is: a table, with names that exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from omdml.errors import ConfigurationError
from omdml.streams.addresses import masked
from omdml.workers.configuration.suggestion import suggestion


def as_table(value: object, where: str) -> dict[str, Any]:
    """The section, if it is one; raises ConfigurationError."""
    if not isinstance(value, dict):
        # It may be an address with a password in it.
        shown = masked(value) if isinstance(value, str) else value
        raise ConfigurationError(f"{where} is {shown!r}, expected a table")
    return value


def unknown(table: Iterable[str], valid: Iterable[str], where: str) -> list[str]:
    """What is wrong with the names that are not valid: each time the nearest that is."""
    return [f"{where}: no option {name!r}{suggestion(name, valid)}" for name in table if name not in valid]
