"""Reads a configuration: a TOML file, then the environment, then what a command sets."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omdml.errors import ConfigurationError
from omdml.streams.bounded_files import DOCUMENT_BYTES, read_regular
from omdml.workers.configuration.checks.mistakes import Mistakes
from omdml.workers.configuration.checks.whole import checked
from omdml.workers.configuration.config import (
    Configuration,
)
from omdml.workers.configuration.secret_files import SECRETS, read_secrets

PREFIX = "OMDML_"
# What tomllib raises, also about a number of thousands of digits, or brackets that are nested as deep.
NOT_TOML = (ValueError, RecursionError)
TWICE = "an option or a section is there twice: leave one of them out"
QUOTES = 'a text needs quotes, as in path = "items/", and so does a name with a *, as in [models."shop-*"]'


def load(
    path: str | Path | None,
    environment: Mapping[str, str],
    overrides: Mapping[str, Any] | None = None,
    thorough: bool = False,
) -> Configuration:
    """The configuration of a file (None: defaults), then the environment, then ``overrides``, the later one winning.

    The error tells the mistakes that are found without learners, or, if ``thorough``, those of models as well.

    Raises
    ------
    ConfigurationError
        No such file, not TOML, an unknown option (the nearest valid one is named), a value of the wrong type or range.
    """
    table: dict[str, Any] = {}
    if path is not None:
        try:
            # Editors on Windows put a mark before the first line.
            table = tomllib.loads(read_regular(path, DOCUMENT_BYTES).decode("utf-8-sig"))
        except OSError as error:
            raise ConfigurationError(f"configuration {path}: cannot be read ({error.strerror})") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"configuration {path}: no text in UTF-8 ({error}): save it as UTF-8") from error
        except NOT_TOML as error:
            # Python's messages about what is there twice begin with this word, and no others do.
            hint = TWICE if str(error).startswith("Cannot ") else QUOTES
            raise ConfigurationError(f"configuration {path}: not TOML: {error}: {hint}") from error
    mistakes = Mistakes()
    read_secrets(table, mistakes)
    _merge(table, of_environment(environment, mistakes))
    _merge(table, overrides or {})
    return checked(table, mistakes, thorough)


def of_environment(environment: Mapping[str, str], mistakes: Mistakes) -> dict[str, Any]:
    """The options that variables of the environment set. Variables with wrong names are mistakes."""
    table: dict[str, Any] = {}
    for name, value in sorted(environment.items()):
        if near := _single_underscore(name):
            mistakes.note(f"environment {name}: did you mean {near} (two underscores)?")
        elif name.removeprefix(PREFIX).lower() in Configuration.__struct_fields__ and name.startswith(PREFIX):
            mistakes.note(f"environment {name}: this is a section, expected one of its options: {name}__OPTION")
        elif name.startswith(PREFIX) and "__" in name:
            with mistakes.noted():
                _put(table, name.removeprefix(PREFIX).split("__"), value, name)
    read_secrets(table, mistakes)
    return table


def _single_underscore(name: str) -> str | None:
    """The corrected name of a variable such as ``OMDML_STORE_URL``, which lacks an underscore."""
    section, _, option = name.removeprefix(PREFIX).partition("_")
    sections = [known.upper() for known in Configuration.__struct_fields__]
    if name.startswith(PREFIX) and section in sections and option and not option.startswith("_"):
        return f"{PREFIX}{section}__{option}"
    return None


# Sections of tables that users name: these names keep their case in variables of the environment.
NAMED = ("models", "catalogues", "experiments")


def _put(table: dict[str, Any], parts: list[str], value: str, name: str) -> None:
    section = parts[0].lower()
    names = parts[1:-1] if section in NAMED else [part.lower() for part in parts[1:-1]]
    keys = [section, *names, parts[-1].lower()]
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise ConfigurationError(f"environment {name}: {key!r} is not a table")
    table[keys[-1]] = value if keys[-1] in SECRETS else _plain(value)


def _plain(text: str) -> Any:
    """A value of the environment as TOML would read it, or else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except NOT_TOML:
        return text


def _merge(table: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, Mapping) and isinstance(table.get(key), dict):
            _merge(table[key], value)
        else:
            table[key] = dict(value) if isinstance(value, Mapping) else value
