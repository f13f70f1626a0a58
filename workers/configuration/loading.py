"""Reads a configuration: a TOML file, then the environment, then what a command sets."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from omdml.errors import ConfigurationError
from omdml.streams.addresses import shown
from omdml.streams.bounded_files import DOCUMENT_BYTES, read_regular
from omdml.workers.configuration.checks.experiments import check_experiments
from omdml.workers.configuration.checks.models import checked_model
from omdml.workers.configuration.checks.options import check_all_but_models
from omdml.workers.configuration.checks.parents import check_parents
from omdml.workers.configuration.checks.sections import as_table, refuse_unknown
from omdml.workers.configuration.config import (
    CatalogueConfig,
    Configuration,
    ExperimentConfig,
    FileLog,
    KafkaLog,
    ModelConfig,
)
from omdml.workers.configuration.secret_files import SECRETS, read_secrets

PREFIX = "OMDML_"
# What msgspec calls the kinds of values in a TOML file.
KINDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a section",
    "null": "nothing",
}
# Among these errors are numbers of thousands of digits, and brackets nested as deep.
NOT_TOML = (ValueError, RecursionError)


def load(
    path: str | Path | None, environment: Mapping[str, str], overrides: Mapping[str, Any] | None = None
) -> Configuration:
    """The configuration of a file (None: defaults), then the environment, then ``overrides``, the later one winning.

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
            raise ConfigurationError(f"configuration {path}: not TOML: {error}") from error
    read_secrets(table)
    _merge(table, of_environment(environment))
    _merge(table, overrides or {})
    return _checked(table)


def of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The options that variables of the environment set; raises ConfigurationError if one has a wrong name."""
    table: dict[str, Any] = {}
    for name, value in sorted(environment.items()):
        if near := _single_underscore(name):
            raise ConfigurationError(f"environment {name}: did you mean {near} (two underscores)?")
        if name.removeprefix(PREFIX).lower() in Configuration.__struct_fields__ and name.startswith(PREFIX):
            raise ConfigurationError(
                f"environment {name}: this is a section, expected one of its options: {name}__OPTION"
            )
        if name.startswith(PREFIX) and "__" in name:
            _put(table, name.removeprefix(PREFIX).split("__"), value, name)
    read_secrets(table)
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


def _checked(table: dict[str, Any]) -> Configuration:
    refuse_unknown(table, Configuration.__struct_fields__, "the configuration")
    logs: dict[str, type[msgspec.Struct]] = {"file": FileLog, "kafka": KafkaLog}
    log = {"kind": "file", **as_table(table.get("log", {}), "log")}
    if not isinstance(log["kind"], str) or log["kind"] not in logs:
        raise ConfigurationError(f"log.kind is {shown(log['kind'])}, expected 'file' or 'kafka'")
    if "kind" not in as_table(table.get("log", {}), "log") and "servers" in log:
        raise ConfigurationError(
            'log.servers is an option of Kafka, and log.kind is "file" unless set: add kind = "kafka"'
        )
    refuse_unknown(log, ("kind", *logs[log["kind"]].__struct_fields__), "log")
    for name, struct in _sections().items():
        refuse_unknown(as_table(table.get(name, {}), name), struct.__struct_fields__, name)
    catalogues = as_table(table.get("catalogues", {}), "catalogues")
    for name, entry in catalogues.items():
        refuse_unknown(as_table(entry, f"catalogues.{name}"), CatalogueConfig.__struct_fields__, f"catalogues.{name}")
        if "path" not in entry:
            raise ConfigurationError(f'catalogues.{name}: it has no path: add one, such as path = "items/"')
    for name, entry in as_table(table.get("experiments", {}), "experiments").items():
        refuse_unknown(
            as_table(entry, f"experiments.{name}"), ExperimentConfig.__struct_fields__, f"experiments.{name}"
        )
    models = as_table(table.get("models", {}), "models")
    check_all_but_models(_converted({**table, "log": log, "models": {}}))
    models = {name: checked_model(name, entry, catalogues) for name, entry in models.items()}
    configuration = _converted({**table, "log": log, "models": models})
    check_parents(configuration.models)
    asked = {
        model for experiment in configuration.experiments.values() for model in (experiment.model, experiment.against)
    }
    check_experiments(configuration.experiments, {model for model in asked if configuration.match(model)})
    return configuration


def _sections() -> dict[str, type[msgspec.Struct]]:
    """The sections that have one form each, and no names that users choose."""
    fields = msgspec.structs.fields(Configuration)
    return {
        field.name: field.type
        for field in fields
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
    }


def _choices(option: str) -> str:
    """What an option may be that is one of several words."""
    section, _, name = option.partition(".")
    structs: dict[str, type[msgspec.Struct]] = {**_sections(), "log": KafkaLog, "models[...]": ModelConfig}
    types = {field.name: field.type for field in msgspec.structs.fields(structs[section])}
    return ", ".join(map(repr, get_args(types[name])))


def _converted(table: Mapping[str, Any]) -> Configuration:
    try:
        return msgspec.convert(table, Configuration, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_sentence(str(error))) from None


def _sentence(message: str) -> str:
    """What msgspec says is wrong, with the option's name first.

    Examples
    --------
    >>> _sentence("Expected `float | null`, got `str` - at `$.worker.save_mb_s`")
    'worker.save_mb_s: expected a number or nothing, got text'
    """
    if match := re.fullmatch(r"Expected `(.+)`, got `(.+)` - at `\$\.(.+)`", message):
        expected, got = (
            " or ".join(KINDS.get(kind, kind) for kind in part.split(" | ")) for part in match.groups()[:2]
        )
        return f"{match[3]}: expected {expected}, got {got}"
    what, _, place = message.partition(" - at `$.")
    option = place.removesuffix("`")
    if match := re.fullmatch(r"Expected `(.+)` (>=|<=|>|<) (\S+)", what):
        return f"{option}: expected {KINDS.get(match[1], match[1])} {match[2]} {match[3]}"
    if match := re.fullmatch("Invalid enum value '(.*)'", what, re.DOTALL):
        return f"{option} is {shown(match[1])}, expected one of {_choices(option)}"
    if what == "Number out of range":
        return f"{option}: the number is out of range, expected a smaller one"
    return "configuration: " + re.sub("enum value '(.*)'", lambda match: f"value: {shown(match[1])}", message)
