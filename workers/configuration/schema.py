"""The configuration as a JSON schema, for editors and for programs that write configurations."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import msgspec

from omdml import DEFAULT_LEARNER
from omdml.learners import LEARNERS
from omdml.workers.configuration.config import OF_ANY_LEARNER, Configuration, defaults
from omdml.workers.configuration.secret_files import ENDING, IN_FILES, OF_NAMED

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {bool: "boolean", int: "number", float: "number", str: "string"}
# Structs of the sections in which options may be read from files.
STRUCTS = {
    "log": "KafkaLog",
    "store": "StoreConfig",
    "node": "NodeConfig",
    "webhook": "WebhookConfig",
}
# The same for sections whose tables are named by users.
NAMED_STRUCTS = {"catalogues": "CatalogueConfig", "models": "ModelConfig"}


def schema() -> dict[str, Any]:
    """The JSON schema of a configuration file. Rules about catalogues, or about several options, are not in it."""
    document = msgspec.json.schema(Configuration)
    parts = document["$defs"]
    # A section [log] that names no kind is a log in files.
    parts["FileLog"]["required"].remove("kind")
    del parts["Configuration"]["properties"]["log"]["discriminator"]
    for section, options in IN_FILES.items():
        _read_from_files(parts[STRUCTS[section]], options)
    for section, options in OF_NAMED.items():
        _read_from_files(parts[NAMED_STRUCTS[section]], options)
    _read_from_files(parts["NamedToken"], IN_FILES["node"])
    model = parts["ModelConfig"]
    parts["ModelConfig"] = {
        "description": model["description"],
        "type": "object",
        "properties": {"learner": {"enum": list(LEARNERS), "default": DEFAULT_LEARNER}},
        "allOf": [{"if": _chooses(learner), "then": _model(learner, model["properties"])} for learner in LEARNERS],
    }
    for part in parts.values():
        part.pop("title", None)
        part["description"] = inspect.cleandoc(part["description"])
    return {"$schema": DIALECT, "title": "omdml", **document}


def _read_from_files(part: dict[str, Any], options: Iterable[str]) -> None:
    """Allow what names a file that holds an option, in place of the option."""
    for option in options:
        part["properties"][option + ENDING] = {"type": "string", "description": f"A file that holds ``{option}``."}
        if option in part["required"]:
            part["required"].remove(option)
            part["oneOf"] = [{"required": [option]}, {"required": [option + ENDING]}]


def _chooses(learner: str) -> dict[str, Any]:
    """Holds for the section of a model with this learner."""
    return {
        "properties": {"learner": {"const": learner}},
        "required": [] if learner == DEFAULT_LEARNER else ["learner"],
    }


def _model(learner: str, common: dict[str, Any]) -> dict[str, Any]:
    """What such a section holds: the learner's hyperparameters beside what every model has."""
    in_files = (option + ENDING for option in OF_NAMED["models"])
    shared = {name: common[name] for name in (*OF_ANY_LEARNER, *in_files)}
    hyperparameters = {name: {"type": TYPES[type(value)], "default": value} if type(value) in TYPES else {}
           for name, value in defaults(learner).items()}  # fmt: skip
    return {"properties": {**shared, **hyperparameters}, "additionalProperties": False}
