"""What can be configured: every section and its options with their defaults, frozen."""

from __future__ import annotations

import fnmatch
import hashlib
import inspect
from typing import Annotated, Any, Literal

import msgspec

from omdml import DEFAULT_LEARNER
from omdml.errors import NoModel
from omdml.streams.addresses import masked
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.part_names import part_of
from omdml.workers.configuration.access import Access, NamedToken

# What can describe an item to a learner.
COORDINATES = ("features", "mapped")
# The options of a model whatever its learner is.
OF_ANY_LEARNER = (
    "learner",
    "catalogue",
    "coordinates",
    "max_models",
    "parent",
    "expand",
    "index",
    "candidates",
    "max_share_a_user",
    "parts",
)
# How many models a pattern may have: as many as a worker begins in ten seconds.
MAX_MODELS = 10_000


class FileLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="file", tag_field="kind"):
    """A folder of segments, or one growing file, on this machine; dead letters in a folder beside it.

    The newest ``letters_keep_mb`` megabytes (of 1,000,000 bytes) of dead letters are kept.
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
    # group.instance.id. A worker that is killed and back within the session timeout keeps its partitions. After it, the
    # partitions of a dead worker go to others.
    member: str | None = None
    session_timeout_s: float = 6.0


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where checkpoints and snapshots are kept: ``dir:PATH``, ``redis://...``, ``rediss://...`` or ``valkey://...``."""

    url: str = "dir:state"

    def __repr__(self) -> str:
        return f"StoreConfig(url={masked(self.url)!r})"


class CatalogueConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The items' vectors: a folder made by ``omdml catalogue build``, or ``redis://...#NAME``.

    ``pictures`` is a folder with pictures of the items, for the console: a file for each item, such as ``ID.png``.
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
    the learner chooses. Nodes ``expand`` queries by this many nearest items, unless a search says otherwise.
    Their ``index`` is exact, or approximate: most of the nearest items, found by looking at fewer.
    If ``candidates`` is the address of an index that ``omdml sync`` keeps, they hold no embedded items: the index
    proposes candidates, and the live metric ranks these.
    A pattern covers ``max_models`` at most: otherwise a sender could fill the store by naming ever new models.
    A new model begins with what its ``parent``, another model, serves at that time.
    Events are refused if one user would have more than ``max_share_a_user`` of the newest comparisons that name a user;
    1 is no limit.
    A model in ``parts`` is learned on every partition, and what the partitions make of it is added up.
    """

    learner: str = DEFAULT_LEARNER
    catalogue: str = ""
    coordinates: Literal["features", "mapped"] = "mapped"
    parameters: dict[str, Any] = {}
    max_models: Annotated[int, msgspec.Meta(ge=1)] = MAX_MODELS
    expand: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    index: Literal["exact", "approximate"] = "exact"
    candidates: str = ""
    parent: str = ""
    max_share_a_user: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    parts: bool = False

    def __repr__(self) -> str:
        shown = msgspec.structs.replace(self, candidates=masked(self.candidates)) if self.candidates else self
        return "ModelConfig(" + ", ".join(f"{name}={getattr(shown, name)!r}" for name in self.__struct_fields__) + ")"

    def digest(self) -> str:
        """A digest of everything that changes what is learned. To write a default out does not change it."""
        chosen = {**defaults(self.learner), **self.parameters}
        plain = {name: float(v) if type(v) is int else v for name, v in chosen.items()}
        # A digest of features has no third part, so that checkpoints from before there was a choice keep theirs.
        third = () if self.coordinates == "features" else (self.coordinates,)
        return hashlib.sha256(msgspec.json.encode((self.learner, plain, *third), order="sorted")).hexdigest()


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The learner worker. ``bind`` serves /metrics; empty: not at all.

    New models of patterns begin at ``new_models_s`` at most. Models together take ``memory_mb`` at most, and their
    checkpoints ``save_mb_s`` of the store's bandwidth; megabytes are of 1,000,000 bytes.
    """

    publish_interval_s: float = 0.016
    checkpoint_interval_s: float = 1.0
    max_poll_records: int = 4000
    memory_mb: float = 1000.0
    save_mb_s: float = 20.0
    new_models_s: float = 1000.0
    bind: str = ""


class GuardConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must hold before a snapshot goes live.

    About one event in ``hold_out`` is never learned. On the newest 256 of these, a candidate's margins may be lower
    than those of an earlier version by at most ``tolerance``, at this ``confidence``. Unless these events show that the
    candidate is better, its norms and its spread over directions must stay within a factor of ``growth``, and at most
    the share ``moved`` of the weight may move between modalities.
    """

    on: bool = True
    hold_out: int = 50
    tolerance: float = 0.02
    confidence: float = 0.999
    growth: float = 10.0
    moved: float = 0.5

    @property
    def every(self) -> int:
        """About one event of this many is held out; 0 is none."""
        return self.hold_out if self.on else 0


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The retrieval node. Whoever posts feedback or moves versions must send ``token`` or one of ``tokens``.

    A node without any token takes feedback from this machine alone, and moves no versions. Whoever reads needs a token
    only if the node is ``private``. Pages of ``origins`` may ask it from a browser.

    ``hosts`` are the names in a request's header ``Host`` that the node answers to, beside ``localhost``, loopback
    addresses and the one in ``bind``. If there is none, a node with a token answers to any.

    ``ready`` says when ``/readyz`` answers 200: once ``all`` models that are configured by name can answer, or ``any``.

    Galleries of models that patterns cover take ``memory_mb`` at most, but for one that is larger alone.
    """

    bind: str = "127.0.0.1:8080"
    token: str = ""
    tokens: dict[str, NamedToken] = {}
    private: bool = False
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    ready: Literal["all", "any"] = "all"
    memory_mb: float = 1000.0

    def __repr__(self) -> str:
        shown = msgspec.structs.replace(self, token="***") if self.token else self
        return "NodeConfig(" + ", ".join(f"{name}={getattr(shown, name)!r}" for name in self.__struct_fields__) + ")"

    @property
    def access(self) -> Access:
        """The tokens of the node: who may read, and who may write."""
        return Access(self.token, self.tokens, self.private, self.origins)


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In metrics up to ``models`` names and patterns have series of their own; the others share the label ``other``."""

    models: int = 100


class LoggingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What processes write to standard error, and from which level on."""

    format: Literal["logfmt", "json"] = "logfmt"
    level: Literal["debug", "info", "warning", "error"] = "info"


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The webhook that a worker calls if something needs an operator, and the timeout of a call in seconds."""

    url: str = ""
    timeout_s: float = 5.0

    def __repr__(self) -> str:
        return f"WebhookConfig(url={masked(self.url)!r}, timeout_s={self.timeout_s})"


class LinksConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the console's page Health links to: RUNBOOK.md at an address that your team reads, and Grafana's board.

    Without ``runbook``, the page names the file and the section.
    """

    runbook: str = ""
    grafana: str = ""


class ExperimentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Searches of ``model`` are answered together with the model ``against``, or with its own kept ``against_version``.

    ``share`` of the searches are; 1 is all of them. ``counts`` is a file that keeps the counts when the node restarts;
    without it they begin again with the node.
    """

    model: str
    against: str = ""
    against_version: int | None = None
    share: float = 0.1
    counts: str = ""


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
    links: LinksConfig = LinksConfig()
    experiments: dict[str, ExperimentConfig] = {}

    @property
    def in_parts(self) -> frozenset[str]:
        """The models that are learned in parts."""
        return frozenset(name for name, model in self.models.items() if model.parts)

    def require_models(self) -> None:
        """Raises NoModel if no model is configured."""
        if not self.models:
            raise NoModel("no model is configured: add [models.NAME], or pass --catalogue PATH --model NAME")

    def match(self, model: str) -> tuple[str, ModelConfig] | None:
        """The name or pattern that covers a model, and what it says; exact names first, then in the order given.

        Nothing covers a part: it has what its model has, and nobody may ask for it (streams/part_names.py).
        """
        if part_of(model):
            return None
        if model in self.models:
            return model, self.models[model]
        for pattern, config in self.models.items():
            if is_pattern(pattern) and fnmatch.fnmatchcase(model, pattern):
                return pattern, config
        return None

    def expand(self, model: str) -> int:
        """By how many nearest items nodes expand this model's queries."""
        matched = self.match(model)
        return matched[1].expand if matched else 0

    def approximate(self, model: str) -> bool:
        """Whether nodes answer this model's searches from an approximate index."""
        matched = self.match(model)
        return matched is not None and matched[1].index == "approximate"


def defaults(learner: str) -> dict[str, Any]:
    """The hyperparameters of a learner, with their defaults."""
    from omdml.learners import LEARNERS

    signature = inspect.signature(LEARNERS[learner]).parameters
    return {name: parameter.default for name, parameter in signature.items() if name != "dims"}


def is_pattern(name: str) -> bool:
    """Whether a model's name in the configuration stands for many."""
    return any(sign in name for sign in "*?[")
