"""Configuration: a TOML file and the environment, checked and frozen."""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import inspect
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from omdml import DEFAULT_LEARNER
from omdml.errors import ConfigurationError, ParameterError
from omdml.streams.addresses import masked, shown
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.regular import DOCUMENT_BYTES, read_regular
from omdml.workers.configuration.access import Access, NamedToken, check_pages, check_tokens
from omdml.workers.configuration.experiments import ExperimentConfig, check_experiments
from omdml.workers.configuration.parents import check_parents
from omdml.workers.configuration.process import address
from omdml.workers.configuration.ranges import check_ranges
from omdml.workers.configuration.secret_files import SECRETS, read_secrets

PREFIX = "OMDML_"
# What can describe an item to a learner.
COORDINATES = ("features", "mapped")
# How many models a pattern may have: as many as a worker begins in ten seconds.
MAX_MODELS = 10_000
# What a header ``Host`` can name: a name or an address, and perhaps a port.
HOST = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
# Among these errors are numbers of thousands of digits, and brackets nested as deep.
NOT_TOML = (ValueError, RecursionError)


class FileLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="file", tag_field="kind"):
    """A folder of segments, or one growing file, on this machine; dead letters in a folder beside it.

    Of the letters' folder ``letters_keep_mb`` megabytes (of 1,000,000 bytes) are kept, the newest.
    """

    path: str = "feedback/"
    letters: str = "letters/"
    letters_keep_mb: float = 1000.0
    group: str = "omdml"


class KafkaLog(KafkaOptions, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="kafka", tag_field="kind"):
    """A topic; dead letters in a topic of their own, ``<topic>.letters`` unless named.

    ``partitioner`` is what the senders choose a partition by, from the key, which is the model's name.
    """

    topic: str = "feedback"
    letters: str = ""
    group: str = "omdml"
    partitioner: Literal["murmur2", "crc32"] = "murmur2"
    # group.instance.id. A worker that is back within the session timeout keeps its partitions.
    member: str | None = None
    session_timeout_s: float = 6.0


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where checkpoints and snapshots are kept: ``dir:PATH``, ``redis://...``, ``rediss://...`` or ``valkey://...``."""

    url: str = "dir:state"

    def __repr__(self) -> str:
        return f"StoreConfig(url={masked(self.url)!r})"


class CatalogueConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The items' vectors: a folder made by ``omdml catalogue build``, or ``redis://...#NAME``.

    ``pictures`` is a folder with pictures of the items, for the console: a file an item, such as ``ID.png``.
    ``attributes`` is a file of JSON lines about items, by which nodes filter: ``{"id": "17", "price": 9.5}``.
    """

    path: str
    pictures: str = ""
    attributes: str = ""

    def __repr__(self) -> str:
        return (
            f"CatalogueConfig(path={masked(self.path)!r}, pictures={self.pictures!r}, attributes={self.attributes!r})"
        )


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a model, or every model that a pattern matches, learns with.

    ``coordinates`` is what describes an item: the catalogue's modalities, or what its map makes of them. Without it
    the learner chooses. Nodes ``expand`` queries by so many nearest items, unless a search says otherwise.
    A pattern covers ``max_models`` at most: what begins with any name at all would fill the store.
    A new model begins with what the ``parent``, another model, serves then.
    """

    learner: str = DEFAULT_LEARNER
    catalogue: str = ""
    coordinates: Literal["features", "mapped"] = "mapped"
    parameters: dict[str, Any] = {}
    max_models: Annotated[int, msgspec.Meta(ge=1)] = MAX_MODELS
    expand: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    parent: str = ""

    def digest(self) -> str:
        """Of everything that changes what is learned, defaults included: writing one out changes nothing."""
        chosen = {**defaults(self.learner), **self.parameters}
        plain = {name: float(v) if type(v) is int else v for name, v in chosen.items()}
        # a digest of features has no third part: checkpoints of before there was a choice keep theirs
        rest = () if self.coordinates == "features" else (self.coordinates,)
        return hashlib.sha256(msgspec.json.encode((self.learner, plain, *rest), order="sorted")).hexdigest()


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The learner worker. ``bind`` serves /metrics; empty: not at all.

    New models of patterns begin at ``new_models_s`` at most. Models together take ``memory_mb`` at most, and their
    checkpoints ``save_mb_s`` of the store's bandwidth; megabytes are of 1,000,000 bytes.
    """

    publish_interval_s: float = 0.02
    checkpoint_interval_s: float = 1.0
    max_poll_records: int = 1000
    memory_mb: float = 1000.0
    save_mb_s: float = 20.0
    new_models_s: float = 1000.0
    bind: str = ""


class GuardConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must hold before a snapshot goes live.

    About one event of ``hold_out`` is never learned: on 256 of these a candidate's margins may be lower than those of
    an earlier version by ``tolerance`` at most, at this ``confidence``. If they say nothing good of it, its norms and
    its spread over directions stay within a factor of ``growth``, and at most the share ``moved`` of the weight moves
    between modalities.
    """

    on: bool = True
    hold_out: int = 50
    tolerance: float = 0.02
    confidence: float = 0.999
    growth: float = 10.0
    moved: float = 0.5

    @property
    def every(self) -> int:
        """About one event of so many is held out; 0 is none."""
        return self.hold_out if self.on else 0


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The retrieval node. Whoever posts feedback or moves versions must send ``token`` or one of ``tokens``.

    A node that has none of either takes both from this machine alone, and moves no versions. Whoever reads needs one
    only if the node is ``private``. Pages of ``origins`` may ask it from a browser.

    ``hosts`` are the names in a request's header ``Host`` that the node answers to, beside ``localhost``, loopback
    addresses and the one in ``bind``. If there is none, a node with a token answers to any.

    ``ready`` says when ``/readyz`` answers 200: once ``all`` models that are configured by name can answer, or ``any``.
    """

    bind: str = "127.0.0.1:8080"
    token: str = ""
    tokens: dict[str, NamedToken] = {}
    private: bool = False
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    ready: Literal["all", "any"] = "all"

    def __repr__(self) -> str:
        shown = msgspec.structs.replace(self, token="***") if self.token else self
        return "NodeConfig(" + ", ".join(f"{name}={getattr(shown, name)!r}" for name in self.__struct_fields__) + ")"

    @property
    def access(self) -> Access:
        """Who may read and write."""
        return Access(self.token, self.tokens, self.private, self.origins)


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Prometheus is told: ``models`` names and patterns of models apart, the others together as ``other``."""

    models: int = 100


class LoggingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What processes write to standard error, and from which level on."""

    format: Literal["logfmt", "json"] = "logfmt"
    level: Literal["debug", "info", "warning", "error"] = "info"


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whom a worker tells of what needs an operator, and how many seconds of silence of theirs it bears."""

    url: str = ""
    timeout_s: float = 5.0

    def __repr__(self) -> str:
        return f"WebhookConfig(url={masked(self.url)!r}, timeout_s={self.timeout_s})"


class Configuration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything; every option has a default but catalogues and models."""

    log: FileLog | KafkaLog = FileLog()
    store: StoreConfig = StoreConfig()
    catalogues: dict[str, CatalogueConfig] = {}
    models: dict[str, ModelConfig] = {}
    worker: WorkerConfig = WorkerConfig()
    guard: GuardConfig = GuardConfig()
    node: NodeConfig = NodeConfig()
    metrics: MetricsConfig = MetricsConfig()
    logging: LoggingConfig = LoggingConfig()
    webhook: WebhookConfig = WebhookConfig()
    experiments: dict[str, ExperimentConfig] = {}

    def match(self, model: str) -> tuple[str, ModelConfig] | None:
        """The name or pattern that covers a model, and what it says; exact names first, then in the order given."""
        if model in self.models:
            return model, self.models[model]
        for pattern, found in self.models.items():
            if is_pattern(pattern) and fnmatch.fnmatchcase(model, pattern):
                return pattern, found
        return None

    def expand(self, model: str) -> int:
        """What nodes expand this model's queries to."""
        matched = self.match(model)
        return matched[1].expand if matched else 0


def defaults(learner: str) -> dict[str, Any]:
    """The hyperparameters of a learner, with their defaults."""
    from omdml.learners import LEARNERS

    signature = inspect.signature(LEARNERS[learner]).parameters
    return {name: parameter.default for name, parameter in signature.items() if name != "dims"}


def is_pattern(name: str) -> bool:
    """Whether a model's name in the configuration stands for many."""
    return any(sign in name for sign in "*?[")


# Sections of tables that users name: these names keep their case in variables of the environment.
NAMED = ("models", "catalogues", "experiments")


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
    _merge(table, _of_environment(environment))
    _merge(table, overrides or {})
    return _checked(table)


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
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
    """What ``OMDML_STORE_URL`` should be."""
    section, _, option = name.removeprefix(PREFIX).partition("_")
    sections = [known.upper() for known in Configuration.__struct_fields__]
    if name.startswith(PREFIX) and section in sections and option and not option.startswith("_"):
        return f"{PREFIX}{section}__{option}"
    return None


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
    known(table, Configuration.__struct_fields__, "the configuration")
    logs: dict[str, type[msgspec.Struct]] = {"file": FileLog, "kafka": KafkaLog}
    log = {"kind": "file", **_table(table.get("log", {}), "log")}
    if not isinstance(log["kind"], str) or log["kind"] not in logs:
        raise ConfigurationError(f"log.kind is {shown(log['kind'])}, expected 'file' or 'kafka'")
    known(log, ("kind", *logs[log["kind"]].__struct_fields__), "log")
    sections: dict[str, type[msgspec.Struct]] = {
        "store": StoreConfig,
        "worker": WorkerConfig,
        "guard": GuardConfig,
        "node": NodeConfig,
        "metrics": MetricsConfig,
        "logging": LoggingConfig,
    }
    for name, struct in sections.items():
        known(_table(table.get(name, {}), name), struct.__struct_fields__, name)
    catalogues = _table(table.get("catalogues", {}), "catalogues")
    for name, entry in catalogues.items():
        known(_table(entry, f"catalogues.{name}"), CatalogueConfig.__struct_fields__, f"catalogues.{name}")
    for name, entry in _table(table.get("experiments", {}), "experiments").items():
        known(_table(entry, f"experiments.{name}"), ExperimentConfig.__struct_fields__, f"experiments.{name}")
    models = _table(table.get("models", {}), "models")
    _check_all_but_models(_converted({**table, "log": log, "models": {}}))
    models = {name: _model(name, entry, catalogues) for name, entry in models.items()}
    found = _converted({**table, "log": log, "models": models})
    check_parents(found.models)
    asked = {model for one in found.experiments.values() for model in (one.model, one.against)}
    check_experiments(found.experiments, {model for model in asked if found.match(model)})
    return found


def _converted(table: Mapping[str, Any]) -> Configuration:
    try:
        return msgspec.convert(table, Configuration, strict=False)
    except msgspec.ValidationError as error:
        message = re.sub("enum value '(.*)'", lambda found: f"value: {shown(found[1])}", str(error))
        raise ConfigurationError(f"configuration: {message}") from None


def _check_all_but_models(found: Configuration) -> None:
    """What needs no learner. Importing these takes a second; other mistakes should be told before that."""
    check_ranges(found)
    _check_guard(found.guard)
    _check_texts(found)
    _check_letters(found.log)
    if isinstance(found.log, KafkaLog):
        found.log.check()
    check_tokens(found.node.token, found.node.tokens)
    check_pages(found.node.private, found.node.origins, found.node.tokens, found.node.access)
    address(found.node.bind, "node.bind")
    for host in found.node.hosts:
        if not HOST.fullmatch(host):
            raise ConfigurationError(
                f"node.hosts holds {shown(host)}, expected names such as shop.internal, no patterns"
            )
    if found.worker.bind:
        address(found.worker.bind, "worker.bind")
    _check_webhook(found)


def _check_webhook(found: Configuration) -> None:
    url = found.webhook.url
    # The address may hold a secret: it is not shown.
    if url and not re.fullmatch(r"https?://[^\s/?#]+(/\S*)?", url):
        raise ConfigurationError("webhook.url is no address, expected http://HOST/PATH or https://HOST/PATH")
    if url and found.logging.level == "error":
        raise ConfigurationError(
            "webhook.url is set and logging.level is error: lines that are not written are not sent; expected warning, "
            "info or debug"
        )


def _check_guard(guard: GuardConfig) -> None:
    ranges = {
        "tolerance": (0 <= guard.tolerance <= 2, "a number from 0 to 2, what margins can differ by"),
        "confidence": (0.5 <= guard.confidence < 1, "a probability from 0.5 to below 1"),
        "growth": (1 < guard.growth < math.inf, "a factor above 1"),
        "moved": (0 < guard.moved <= 1, "a share above 0, at most 1"),
    }
    for name, (sound, expected) in ranges.items():
        if not sound:
            raise ConfigurationError(f"guard.{name} is {getattr(guard, name)}, expected {expected}")


EXPECTED = {"log.path": "a path", "log.letters": "a path or a topic", "log.servers": "host:port"}


def _check_texts(found: Configuration) -> None:
    """Refuse what is empty and must not be, as an unset variable of the environment makes it."""
    log = found.log
    names = ("path", "letters", "group") if isinstance(log, FileLog) else ("servers", "topic", "group")
    texts: dict[str, str] = {f"log.{name}": getattr(log, name) for name in names}
    texts["store.url"] = found.store.url
    texts |= {f"catalogues.{name}.path": catalogue.path for name, catalogue in found.catalogues.items()}
    if isinstance(log, KafkaLog) and "@" in log.servers:
        raise ConfigurationError(
            "log.servers holds a user or a password (not shown), expected host:port: they belong in "
            "log.sasl_plain_username and log.sasl_plain_password_file"
        )
    if isinstance(log, KafkaLog):
        if log.member is not None:
            texts["log.member"] = log.member
        if log.letters:
            texts["log.letters"] = log.letters
    for name, text in texts.items():
        if not text.strip():
            raise ConfigurationError(f"{name} is {text!r}, expected a value: set it, or leave it out for its default")
        if name.startswith("log.") and "://" in text:
            raise ConfigurationError(f"{name} is {masked(text)!r}, an address, expected {EXPECTED.get(name, 'a name')}")
        if "\0" in text:
            raise ConfigurationError(f"{name} holds a NUL (not shown), expected text without")


def _check_letters(log: FileLog | KafkaLog) -> None:
    if isinstance(log, FileLog) and Path(log.path).resolve() == Path(log.letters).resolve():
        raise ConfigurationError("log.letters is log.path: dead letters would be read as feedback")
    if isinstance(log, KafkaLog) and log.topic == log.letters:
        raise ConfigurationError("log.letters is log.topic: dead letters would be read as feedback")


def _model(name: str, entry: object, catalogues: Mapping[str, Any]) -> dict[str, Any]:
    if not name.strip():
        raise ConfigurationError(f"models.{name!r}: expected a section [models.NAME] with a name or a pattern in it")
    options = dict(_table(entry, f"models.{name}"))
    where = f"models.{name}"
    if not catalogues:
        raise ConfigurationError(f"{where}: there is no catalogue: add [catalogues.NAME], or pass --catalogue")
    from omdml.learners import LEARNERS

    learner = options.pop("learner", DEFAULT_LEARNER)
    if not isinstance(learner, str) or learner not in LEARNERS:
        raise ConfigurationError(f"{where}.learner is {learner!r}{suggestion(str(learner), LEARNERS)}")
    catalogue = options.pop("catalogue", next(iter(catalogues)) if len(catalogues) == 1 else "")
    if not isinstance(catalogue, str) or catalogue not in catalogues:
        raise ConfigurationError(f"{where}.catalogue is {catalogue!r}{suggestion(str(catalogue), catalogues)}")
    coordinates = options.pop("coordinates", LEARNERS[learner].coordinates)
    if coordinates not in COORDINATES:
        raise ConfigurationError(f"{where}.coordinates is {coordinates!r}, expected 'features' or 'mapped'")
    if coordinates == "mapped":
        options = {**LEARNERS[learner].on_mapped, **options}
    expand = options.pop("expand", 0)
    if type(expand) is not int or not 0 <= expand <= 100:
        raise ConfigurationError(f"{where}.expand is {expand!r}, expected 0 (off) to 100")
    most = options.pop("max_models", None)
    if most is not None and not is_pattern(name):
        raise ConfigurationError(f"{where}.max_models: this is one model, only a pattern such as 'shop-*' covers many")
    parent = options.pop("parent", "")
    known(options, ["learner", "catalogue", "coordinates", "max_models", "parent", "expand", *defaults(learner)], where)
    try:
        LEARNERS[learner](dims=_dims_of(options), **options)
    except (ParameterError, TypeError) as error:
        raise ConfigurationError(f"{where}: {error}") from error
    found = {"learner": learner, "catalogue": catalogue, "coordinates": coordinates, "parameters": options}
    found |= {"parent": parent, "expand": expand}
    return found if most is None else {**found, "max_models": most}


def _dims_of(options: Mapping[str, Any]) -> dict[str, int]:
    """Dimensions that try a learner's options: any will do, but where groups of coordinates say what there must be."""
    groups = options.get("groups")
    if not isinstance(groups, Mapping) or not groups:
        return {"any": 1}
    sizes = {name: len(group) if isinstance(group, list) else group for name, group in groups.items()}
    return {name: size if isinstance(size, int) and size > 0 else 1 for name, size in sizes.items()}


def _table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        # It may be an address with a password in it.
        shown = masked(value) if isinstance(value, str) else value
        raise ConfigurationError(f"{where} is {shown!r}, expected a table")
    return value


def known(table: Iterable[str], valid: Iterable[str], where: str) -> None:
    """Refuse a name that is not valid, naming the nearest that is."""
    for name in table:
        if name not in valid:
            raise ConfigurationError(f"{where}: no option {name!r}{suggestion(name, valid)}")


def suggestion(name: str, valid: Iterable[str]) -> str:
    """``: did you mean 'x'?``, or what there is."""
    names = list(valid)
    near = difflib.get_close_matches(name, names, n=1)
    return f": did you mean {near[0]!r}?" if near else f": there are {', '.join(names) or 'none'}"
