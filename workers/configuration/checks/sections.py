"""What a section is: a table, with names that exist."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from omdml.errors import ConfigurationError
from omdml.messages.suggestion import suggestion
from omdml.streams.addresses import masked
from omdml.workers.configuration.checks.mistakes import Mistakes


def as_table(value: object, where: str) -> dict[str, Any]:
    """The section, if it is one; raises ConfigurationError."""
    if not isinstance(value, dict):
        # It may be an address with a password in it.
        shown = masked(value) if isinstance(value, str) else value
        raise ConfigurationError(f"{where} is {shown!r}, expected a table")
    return value


def only_known(table: Mapping[str, Any], valid: Collection[str], where: str, mistakes: Mistakes) -> dict[str, Any]:
    """The entries whose names are valid. Other names are mistakes, which suggest the nearest valid one."""
    for name in table:
        if name not in valid:
            mistakes.note(f"{where}: no option {name!r}{suggestion(name, valid)}")
    return {name: value for name, value in table.items() if name in valid}
