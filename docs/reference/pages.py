"""Writes the reference pages that follow from the code: ``make pages`` runs it.

``http.md`` comes from the OpenAPI document of nodes. ``configuration.md`` comes from the JSON schema of configurations,
and the meaning of each option from the sample file, ``deploy/omdml.toml``, or from the docstring of a learner. Of
two more pages only parts come from the code: see ``of_learners.py``. A test compares the pages with the code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.reference.of_learners import learners_page, python_page
from omdml import DEFAULT_LEARNER
from omdml.learners import LEARNERS, CPmtML
from omdml.workers.configuration.config import OF_ANY_LEARNER
from omdml.workers.configuration.schema import schema
from omdml.workers.configuration.secret_files import ENDING
from omdml.workers.node.http.openapi import openapi

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "deploy" / "omdml.toml"
OPTION = re.compile(r"^(?:# )*(\w+) = [^#]*#\s*(.+)$")
# The section of a docstring in the form of numpy that explains parameters.
PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^(?:# )?\[([\w.\"*-]+)\]\s*(?:#\s*(.+))?$")
# The sections of the configuration, with the part of the schema that describes each.
SECTIONS = {
    "log": ('Feedback log in files, with `kind = "file"`', "FileLog"),
    "log (Kafka)": ('Feedback log in Kafka, with `kind = "kafka"`', "KafkaLog"),
    "store": ("Store", "StoreConfig"),
    "catalogues.NAME": ("Catalogues", "CatalogueConfig"),
    "worker": ("Workers", "WorkerConfig"),
    "guard": ("Guard", "GuardConfig"),
    "node": ("Nodes", "NodeConfig"),
    "experiments.NAME": ("Experiments", "ExperimentConfig"),
    "metrics": ("Metrics", "MetricsConfig"),
    "webhook": ("Webhook", "WebhookConfig"),
    "links": ("Links", "LinksConfig"),
    "logging": ("Logging", "LoggingConfig"),
}
CONFIGURATION_HEAD = """# Configuration

One TOML file configures workers, nodes and commands: the one that `--config` names, or `omdml.toml` in the current
folder. Every option can come from the environment instead, with two underscores between section and option:
`OMDML_STORE__URL`, `OMDML_MODELS__shop__RANK`. If an option may hold a secret, such as `url`, you can put its value
into a file and name the file in `url_file` instead. [Learners](../learners.md) says which learner to choose.

[The sample file](../../deploy/omdml.toml) shows every option with its default. `omdml config check` checks a file
without any server. `omdml config schema` prints a JSON schema for editors.

This page is generated from the code by `make pages`.
"""
HTTP_HEAD = """# HTTP interface of a node

This page lists every request that a node takes, with each parameter and field. [Searches](../../deploy/SEARCH.md),
[Items](../../deploy/ITEMS.md) and [Feedback](../feedback.md) explain the most important ones with examples.
`GET /schema` answers the same as an OpenAPI document. This page is generated from it by `make pages`.

Errors are problem details (RFC 9457): a JSON object with [these fields](#error). `error` is a code that never changes,
and `message` says what to do. Every answer has the header `X-Request-Id`. The node's log names the same id.

If the node has tokens, requests that change something need one: `Authorization: Bearer TOKEN`. A token has one of the
roles `read`, `feedback`, `items` and `operator`, and may do what the roles before its own may. `node.token` has the
role `operator`. If the role does not suffice, the answer is 403 `forbidden`
([Security](../../deploy/SECURITY.md#http)).
"""


def configuration_page() -> str:
    """The options of every section: type, default and meaning."""
    parts, meanings = schema()["$defs"], _meanings()
    lines = [CONFIGURATION_HEAD]
    for section, (title, part) in SECTIONS.items():
        lines += [
            f"## {title}: `[{section.split(' ')[0]}]`",
            "",
            "| option | type | default | meaning |",
            "|---|---|---|---|",
        ]
        for name, option in parts[part]["properties"].items():
            if name == "kind" or name.endswith("_file"):
                continue
            meaning = meanings.get((section, name)) or meanings.get((section.split(".")[0].split(" ")[0], name), "")
            lines.append(f"| `{name}` | {_type(option, parts)} | {_default(option)} | {_cell(meaning)} |")
        lines.append("")
    lines += _models(parts["ModelConfig"], meanings)
    return "\n".join(lines).rstrip() + "\n"


def _models(part: dict[str, Any], meanings: dict[tuple[str, str], str]) -> list[str]:
    lines = [
        "## Models: `[models.NAME]`",
        "",
        'A name may be a pattern, such as `[models."shop-*"]`, which covers many models.',
        "Any other name has at most 200 characters. Those that are not `A-Z`, `a-z`, `0-9`, `-`, `_`, `.` or `~`",
        "count as 3 to 12, as in a URL.",
        "Every model has these options. The defaults are those of a model of `dca`:",
        "",
        "| option | type | default | meaning |",
        "|---|---|---|---|",
    ]
    branches = {branch["if"]["properties"]["learner"]["const"]: branch["then"] for branch in part["allOf"]}
    of_any = branches[DEFAULT_LEARNER]["properties"] | part["properties"]
    lines += [
        f"| `{name}` | {_type(of_any[name])} | {_default(of_any[name])} | {_cell(meanings.get(('models', name), ''))} |"
        for name in OF_ANY_LEARNER
    ]
    lines += [
        "",
        "Each learner has further options, its hyperparameters. [The Python reference](python.md) has the formulas",
        "with their letters, and says more about each. `None` means that the option is left out. Only Python takes",
        "arrays.",
        "",
        "| learner | option | default | meaning |",
        "|---|---|---|---|",
    ]
    for learner, branch in branches.items():
        explained = hyperparameters(learner)
        lines += [
            f"| `{learner}` | `{name}` | {_default(option)} | {_cell(explained[name])} |"
            for name, option in branch["properties"].items()
            if name.removesuffix(ENDING) not in OF_ANY_LEARNER
        ]
    return lines


def hyperparameters(learner: str) -> dict[str, str]:
    """The first sentence of what docstrings say about each hyperparameter.

    The docstring is the learner's own, that of a class it is derived from, or that of CP-mtML.
    """
    explained: dict[str, str] = {}
    for kind in (*LEARNERS[learner].__mro__, CPmtML):
        section = PARAMETERS.search(inspect.getdoc(kind) or "")
        for name, text in re.findall(r"^(\w+)\n((?:    .*\n?)+)", section[1] if section else "", re.MULTILINE):
            sentence = re.split(r"\.\s+(?=[A-Z])", " ".join(text.split()))[0].removesuffix(".")
            explained.setdefault(name, re.sub(r":class:`(\w+)`", r"`\1`", sentence))
    return explained


def _meanings() -> dict[tuple[str, str], str]:
    """What the sample file says about each option, by section and option; the first mention counts."""
    meanings: dict[tuple[str, str], str] = {}
    section = last = ""
    for line in SAMPLE.read_text().splitlines():
        if match := SECTION.match(line):
            # The sample file has the log in Kafka after the one in files, and commented out.
            section = "log (Kafka)" if line.startswith("# [log]") else match[1].split(".")[0]
        elif match := OPTION.match(line):
            last = match[1]
            meanings.setdefault((section, last), match[2].strip())
        elif line.startswith("   ") and line.strip().startswith("#") and (section, last) in meanings:
            meanings[section, last] += " " + line.strip().lstrip("# ")
    return meanings


def http_page() -> str:
    """Every request with its parameters, its body and its answers, then the schemas that these name."""
    document = openapi()
    lines = [HTTP_HEAD]
    for path, requests in document["paths"].items():
        for verb, request in requests.items():
            lines += [f"## `{verb.upper()} {path}`", "", request["summary"] + ".", *_request(request), ""]
    lines += ["## Schemas", ""]
    for name, part in document["components"]["schemas"].items():
        lines += [f"### {name}", "", *_schema(part), ""]
    return "\n".join(lines).rstrip() + "\n"


def _request(request: dict[str, Any]) -> Iterator[str]:
    if parameters := request.get("parameters"):
        yield from ("", "| parameter | in | type | default | meaning |", "|---|---|---|---|---|")
        for parameter in parameters:
            name, place, schema = parameter["name"], parameter["in"], parameter["schema"]
            meaning = parameter.get("description") or schema.get("description", "")
            default = "required" if parameter.get("required") else _default(schema)
            yield f"| `{name}` | {place} | {_type(schema)} | {default} | {_cell(meaning)} |"
    for kind, body in request.get("requestBody", {}).get("content", {}).items():
        yield from ("", f"Body (`{kind}`): {_type(body.get('schema', {}))}.")
    yield from ("", "| answer | meaning | body |", "|---|---|---|")
    # Of answers whose schema has no name, and so no section of its own.
    fields: list[str] = []
    for status, answer in request["responses"].items():
        schemas = [body.get("schema", {}) for body in answer.get("content", {}).values()]
        bodies = ", ".join(map(_type, schemas))
        yield f"| {status.replace('default', 'any other')} | {_cell(answer['description'])} | {bodies} |"
        fields += [line for schema in schemas if "properties" in schema for line in ("", *_schema(schema))]
    yield from fields


def _schema(part: dict[str, Any]) -> Iterator[str]:
    if meaning := part.get("description"):
        yield from (re.sub(r"\n +", "\n", meaning.replace("``", "`")), "")
    if properties := part.get("properties"):
        yield from ("| field | type | default | meaning |", "|---|---|---|---|")
        for name, option in properties.items():
            default = "required" if name in part.get("required", ()) else _default(option)
            yield f"| `{name}` | {_type(option)} | {default} | {_cell(option.get('description', ''))} |"


def _type(part: dict[str, Any], parts: dict[str, Any] | None = None) -> str:
    """A type in words: ``text or null``, ``list of number``, a link to a schema."""
    if reference := part.get("$ref"):
        name = reference.rpartition("/")[2]
        return name if parts is not None else f"[{name}](#{name.lower()})"
    if choices := part.get("anyOf"):
        return " or ".join(_type(choice, parts) for choice in choices)
    if "enum" in part:
        return " or ".join(f"`{value}`" for value in part["enum"])
    match part.get("type"):
        case "array":
            # Arrays of a fixed length list the types of their elements.
            items = part.get("prefixItems") or [part.get("items") or {}]
            return f"list of {', '.join(dict.fromkeys(_type(item, parts) for item in items))}"
        case "object":
            values = part.get("additionalProperties")
            if isinstance(values, dict):
                return f"object of {_type(values, parts)}"
            return f"object with {', '.join(f'`{name}`' for name in part.get('properties', {}))}".removesuffix(" with ")
        case "string":
            return "text"
        case str(name):
            return name
    return "any"


def _default(part: dict[str, Any]) -> str:
    if "default" not in part:
        return ""
    default = list(part["default"]) if isinstance(part["default"], tuple) else part["default"]
    return (
        f"`{default!r}`".replace("'", '"')
        .replace("`None`", "not set")
        .replace("`True`", "true")
        .replace("`False`", "false")
    )


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("``", "`")).replace("|", "\\|")


PAGES = {
    "docs/reference/configuration.md": configuration_page,
    "docs/reference/http.md": http_page,
    "docs/reference/python.md": python_page,
    "docs/learners.md": learners_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / name).write_text(page())
