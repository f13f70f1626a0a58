"""All mistakes of a configuration: what it must be as a whole, section by section, option by option."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from omdml.errors import ConfigurationError
from omdml.messages.decoding import KINDS, in_words
from omdml.streams.addresses import shown
from omdml.workers.configuration.checks.experiments import check_experiments
from omdml.workers.configuration.checks.mistakes import Mistakes
from omdml.workers.configuration.checks.models import checked_model
from omdml.workers.configuration.checks.options import check_all_but_models
from omdml.workers.configuration.checks.parents import check_parents
from omdml.workers.configuration.checks.sections import as_table, only_known
from omdml.workers.configuration.config import (
    CatalogueConfig,
    Configuration,
    ExperimentConfig,
    FileLog,
    KafkaLog,
)

Table = dict[str, Any]

# Sections whose tables have names that users choose.
NAMED: dict[str, type[msgspec.Struct]] = {"catalogues": CatalogueConfig, "experiments": ExperimentConfig}
LOGS: dict[str, type[msgspec.Struct]] = {"file": FileLog, "kafka": KafkaLog}
# Where msgspec found what is wrong: a section, perhaps an option, perhaps an entry under a name that users choose.
PLACE = re.compile(r"at `\$\.(\w+)(?:\.(\w+))?(\[\.\.\.\])?")


def checked(table: Mapping[str, Any], mistakes: Mistakes, thorough: bool = False) -> Configuration:
    """The configuration that a table holds; raises ConfigurationError with all mistakes that do not follow from others.

    Models need learners, which take time to import. So they are looked at only if nothing else is wrong, or if this
    is to be ``thorough``. ``mistakes`` are those of reading the table; the others are noted there, too.
    """
    sections, catalogues = _known(table, mistakes), table.get("catalogues", {})
    models = sections.pop("models", {})
    sound = _converted(sections, mistakes)
    node = sections.get("node", {})
    with mistakes.noted():
        check_all_but_models(sound, has_token=bool(node.get("token") or node.get("tokens")))
    if not thorough:
        mistakes.report()
    checked_models = {}
    # If this is no table, every model would lack its catalogue.
    for name, entry in models.items() if isinstance(catalogues, dict) else ():
        with mistakes.noted():
            checked_models[name] = checked_model(name, entry, catalogues, thorough)
    configuration = msgspec.structs.replace(sound, models=_converted({"models": checked_models}, mistakes).models)
    wrong = {name: entry for name, entry in models.items() if name not in configuration.models}
    check_parents(configuration.models, wrong, mistakes)
    in_experiments = {
        model for experiment in configuration.experiments.values() for model in (experiment.model, experiment.against)
    }
    configured = {
        model
        for model in in_experiments
        if configuration.match(model) or any(fnmatch.fnmatchcase(model, name) for name in wrong)
    }
    check_experiments(configuration.experiments, configured, mistakes)
    mistakes.report()
    return configuration


def _known(table: Mapping[str, Any], mistakes: Mistakes) -> dict[str, Table]:
    """The sections and options that exist; the others are mistakes."""
    known: dict[str, Table] = {}
    for name, section in only_known(table, Configuration.__struct_fields__, "the configuration", mistakes).items():
        with mistakes.noted():
            known[name] = as_table(section, name)
    with mistakes.noted():
        known["log"] = _known_log(known.pop("log", {}), mistakes)
    for name, struct in _sections().items():
        if name in known:
            known[name] = only_known(known[name], struct.__struct_fields__, name, mistakes)
    for name, struct in NAMED.items():
        entries, known[name] = known.get(name, {}), {}
        for entry, options in entries.items():
            where = f"{name}.{entry}"
            with mistakes.noted():
                valid = only_known(as_table(options, where), struct.__struct_fields__, where, mistakes)
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
    return only_known(log, ("kind", *LOGS[log["kind"]].__struct_fields__), "log", mistakes)


def _sections() -> dict[str, type[msgspec.Struct]]:
    """The sections that have one form each, and no names that users choose."""
    fields = msgspec.structs.fields(Configuration)
    return {
        field.name: field.type
        for field in fields
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
    }


def _choices(option: str) -> str:
    """What an option may be that is one of several words, such as ``logging.level`` or ``node.tokens[...].role``."""
    kind: Any = Configuration
    for part in option.replace("[...]", "[]").split("."):
        name = part.removesuffix("[]")
        types = {field.name: field.type for field in msgspec.structs.fields(kind)}
        # A log in files has no such option.
        kind = KafkaLog if name == "log" else types[name] if name == part else get_args(types[name])[-1]
    return ", ".join(map(repr, get_args(kind)))


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
    section, option, is_entry = place.groups()
    entries = table[section] if option is None else table[section].get(option)
    if is_entry and isinstance(entries, dict):
        where = section if option is None else f"{section}.{option}"
        for name, entry in entries.items():
            alone = {name: entry}
            try:
                msgspec.convert({section: alone if option is None else {option: alone}}, Configuration, strict=False)
            except msgspec.ValidationError as error:
                others = {other: value for other, value in entries.items() if other != name}
                table[section] = others if option is None else {**table[section], option: others}
                return _sentence(str(error)).replace(f"{where}[...]", f"{where}.{name}", 1)
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
        return f"{match[3]}: expected {_in_section(match[1])}, got {_in_section(match[2])}"
    what, _, place = message.partition(" - at `$.")
    option = place.removesuffix("`")
    if match := re.fullmatch(r"Expected `(.+)` (>=|<=|>|<) (\S+)", what):
        return f"{option}: expected {_in_section(match[1])} {match[2]} {match[3]}"
    if match := re.fullmatch("Invalid enum value '(.*)'", what, re.DOTALL):
        return f"{option} is {shown(match[1])}, expected one of {_choices(option)}"
    if match := re.fullmatch("Object missing required field `(.*)`", what):
        return f"{option}: it has no {match[1]}: add one"
    if what == "Number out of range":
        return f"{option}: the number is out of range, expected a smaller one"
    return "configuration: " + re.sub("enum value '(.*)'", lambda match: f"value: {shown(match[1])}", message)


def _in_section(kinds: str) -> str:
    """Kinds of values in words, as a TOML file has them."""
    return in_words(kinds).replace(KINDS["object"], "a section")
