"""All mistakes of a configuration: what it must be as a whole, section by section, option by option."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

import msgspec

from omdml.errors import ConfigurationError
from omdml.streams.addresses import shown
from omdml.workers.configuration.checks.experiments import check_experiments
from omdml.workers.configuration.checks.mistakes import Mistakes
from omdml.workers.configuration.checks.models import checked_model
from omdml.workers.configuration.checks.options import check_all_but_models
from omdml.workers.configuration.checks.parents import check_parents
from omdml.workers.configuration.checks.sections import as_table, unknown
from omdml.workers.configuration.config import (
    CatalogueConfig,
    Configuration,
    ExperimentConfig,
    FileLog,
    KafkaLog,
    ModelConfig,
)

Table = dict[str, Any]

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
# Sections whose tables have names that users choose.
NAMED: dict[str, type[msgspec.Struct]] = {"catalogues": CatalogueConfig, "experiments": ExperimentConfig}
LOGS: dict[str, type[msgspec.Struct]] = {"file": FileLog, "kafka": KafkaLog}
# Where msgspec found what is wrong: a section, perhaps a name in it, perhaps an option.
PLACE = re.compile(r"at `\$\.(\w+)(\[\.\.\.\])?(?:\.(\w+))?")


def checked(table: Mapping[str, Any], thorough: bool = False) -> Configuration:
    """The configuration that a table holds; raises ConfigurationError with all mistakes that do not follow from others.

    Models need learners, which take a second to import. So they are looked at only if nothing else is wrong, or if this
    is to be ``thorough``. What compares models with each other is asked once each of them is right.
    """
    mistakes = Mistakes()
    known, catalogues = _known(table, mistakes), table.get("catalogues", {})
    models = known.pop("models", {})
    if not isinstance(catalogues, dict):
        # Every model would lack its catalogue.
        models = {}
    sound = _converted(known, mistakes)
    with mistakes.noted():
        check_all_but_models(sound)
    if not thorough:
        mistakes.report()
    right = {}
    for name, entry in models.items():
        with mistakes.noted():
            right[name] = checked_model(name, entry, catalogues)
    mistakes.report()
    configuration = _converted({**known, "models": right}, mistakes)
    mistakes.report()
    with mistakes.noted():
        check_parents(configuration.models)
    asked = {
        model for experiment in configuration.experiments.values() for model in (experiment.model, experiment.against)
    }
    with mistakes.noted():
        check_experiments(configuration.experiments, {model for model in asked if configuration.match(model)})
    mistakes.report()
    return configuration


def _known(table: Mapping[str, Any], mistakes: Mistakes) -> dict[str, Table]:
    """The sections and options that exist; the others are mistakes."""
    known: dict[str, Table] = {}
    for name, section in _only(table, Configuration.__struct_fields__, "the configuration", mistakes).items():
        with mistakes.noted():
            known[name] = as_table(section, name)
    with mistakes.noted():
        known["log"] = _known_log(known.pop("log", {}), mistakes)
    for name, struct in _sections().items():
        if name in known:
            known[name] = _only(known[name], struct.__struct_fields__, name, mistakes)
    for name, struct in NAMED.items():
        entries, known[name] = known.get(name, {}), {}
        for entry, options in entries.items():
            where = f"{name}.{entry}"
            with mistakes.noted():
                valid = _only(as_table(options, where), struct.__struct_fields__, where, mistakes)
                if struct is CatalogueConfig and "path" not in options:
                    raise ConfigurationError(f'{where}: it has no path: add one, such as path = "items/"')
                known[name][entry] = valid
    return known


def _known_log(section: Table, mistakes: Mistakes) -> Table:
    log = {"kind": "file", **section}
    if not isinstance(log["kind"], str) or log["kind"] not in LOGS:
        raise ConfigurationError(f"log.kind is {shown(log['kind'])}, expected 'file' or 'kafka'")
    if "kind" not in section and "servers" in log:
        mistakes.note('log.servers is an option of Kafka, and log.kind is "file" unless set: add kind = "kafka"')
        log["kind"] = "kafka"
    return _only(log, ("kind", *LOGS[log["kind"]].__struct_fields__), "log", mistakes)


def _only(table: Mapping[str, Any], valid: Iterable[str], where: str, mistakes: Mistakes) -> Table:
    """What has a name that is valid. Other names are mistakes."""
    for mistake in unknown(table, valid, where):
        mistakes.note(mistake)
    return {name: value for name, value in table.items() if name in valid}


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


def _converted(table: Mapping[str, Table], mistakes: Mistakes) -> Configuration:
    """The configuration with the types that it must have. An option of another type is a mistake, and left out."""
    table = {name: dict(section) for name, section in table.items()}
    while True:
        try:
            return msgspec.convert(table, Configuration, strict=False)
        except msgspec.ValidationError as error:
            mistakes.note(_leave_out(table, str(error)))


def _leave_out(table: dict[str, Table], message: str) -> str:
    """Leave out what such a message is about; returns what is wrong with it."""
    place = PLACE.search(message)
    if place is None:
        raise ConfigurationError(_sentence(message))
    section, is_named, option = place.groups()
    if is_named:
        for name, entry in list(table[section].items()):
            try:
                msgspec.convert({section: {name: entry}}, Configuration, strict=False)
            except msgspec.ValidationError as error:
                del table[section][name]
                return _sentence(str(error).replace(f"$.{section}[...]", f"$.{section}.{name}", 1))
    if table[section].pop(option, None) is None:
        del table[section]
    return _sentence(message)


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
