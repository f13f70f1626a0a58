"""What a model's name means: which learner, with which parameters, on which catalogue."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from omdml.errors import CatalogueError, ConfigurationError, CorruptError
from omdml.learners import LEARNERS, Learner
from omdml.metrics import Metric
from omdml.snapshot import Checkpoint, Snapshot
from omdml.streams.part_names import part_of, whole_of
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.stores.retention import OF_MANY, RETENTION, Retention
from omdml.workers.configuration.config import Configuration, GuardConfig, ModelConfig, is_pattern
from omdml.workers.configuration.model_names import check_name
from omdml.workers.configuration.wording import learn_again

# How many names are remembered.
REMEMBERED = 4096
# Hyperparameters that decide the shape of a learner's state.
SHAPE = ("rank", "clusters", "tasks", "groups", "dtype")


class Start(NamedTuple):
    """What every model of a pattern begins with. Nobody learns with this learner: models get copies.

    ``parent`` is the version of the parent that it was made of, None if nothing is known at the start.
    """

    learner: Learner
    metric: Metric
    parent: int | None = None


def _start_of(learner: Learner, parent: int | None) -> Start:
    # The learner goes through bytes, so that it equals that of a model that was saved at its start and resumed.
    learner = Learner.from_bytes(learner.to_bytes())
    return Start(learner, learner.metric, parent)


class Spec(NamedTuple):
    """One model's part of the configuration, resolved. ``label`` is its name in metrics: the pattern's, if any."""

    label: str
    learner: type[Learner]
    parameters: dict[str, Any]
    catalogue: Catalogue
    digest: str
    guard: GuardConfig
    # How many models may exist, if the label is a pattern.
    max_models: int
    # The start of each generation: all models of a pattern start alike, and computing a start may take seconds.
    starts: dict[str, Start]
    # The model that new ones begin from.
    parent: str = ""
    # The largest share of the newest comparisons that one user may have.
    max_share_a_user: float = 1.0
    # Whether it is learned in parts, one on each partition.
    parts: bool = False

    def fresh(self) -> Learner:
        """A learner at its start; raises StartError if the catalogue is too small for it."""
        return copy.deepcopy(self.start().learner)

    def first_metric(self) -> Metric:
        """The metric at the start, one object for all models; raises StartError as :meth:`fresh` does."""
        return self.start().metric

    @property
    def start_bytes(self) -> int:
        """Bytes of memory that a model takes at its start."""
        start = self.start()
        return start.learner.nbytes + sum(array.nbytes for array in start.metric.to_tensors()[0].values())

    def start(self, parent: Snapshot | None = None) -> Start:
        """What models begin with: nothing learned, or what a parent served; raises StartError as :meth:`fresh` does.

        Raises ParameterError for a parent that no model of this specification can begin from.
        """
        generation = self.catalogue.generation
        if generation not in self.starts:
            learner = self.learner(dims=dict(self.catalogue.dims), **self.parameters)
            learner.start({name: rows[: self.catalogue.first] for name, rows in self.catalogue.features.items()})
            self.starts[generation] = _start_of(learner, None)
        if parent is None:
            return self.starts[generation]
        learner = self.fresh()
        learner.begin_from(parent.metric, parent.version)  # type: ignore[attr-defined]
        return _start_of(learner, parent.version)

    def resumed(self, checkpoint: Checkpoint) -> Learner:
        """The learner of a checkpoint, which goes on with today's hyperparameters.

        Raises ConfigurationError if the shape of what was learned is another: learner, dimensions, rank, tasks.
        """
        learner = Learner.from_bytes(checkpoint.state)
        if checkpoint.configuration == self.digest and dict(learner.dims) == dict(self.catalogue.dims):
            return learner
        shapes = [("learner", learner.name, self.learner.name), ("dims", dict(learner.dims), dict(self.catalogue.dims))]
        before, now = learner._get_params(), self._parameters()
        if type(learner) is self.learner:
            shapes += [(name, before[name], now[name]) for name in SHAPE if name in before]
        if other := [f"{name} {was!r} -> {wanted!r}" for name, was, wanted in shapes if was != wanted]:
            raise self._misfit(checkpoint, ", ".join(other))
        try:
            return learner.learning_on(**self.parameters)
        except CorruptError as error:
            raise self._misfit(checkpoint, f"{', '.join(self.differences(checkpoint))}; {error}") from error

    def differences(self, checkpoint: Checkpoint) -> list[str]:
        """Hyperparameters that a checkpoint was learned with and that are others now: ``eta 0.01 -> 0.02``."""
        before, now = Learner.from_bytes(checkpoint.state)._get_params(), self._parameters()
        return [f"{name} {before[name]!r} -> {now[name]!r}" for name in now if before.get(name) != now[name]]

    def _parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = self.learner(dims=dict(self.catalogue.dims), **self.parameters)._get_params()
        return parameters

    def _misfit(self, checkpoint: Checkpoint, what: str) -> ConfigurationError:
        advice = learn_again(checkpoint.model)
        if self.parts:
            advice = f"begin the model again: omdml models reset {whole_of(checkpoint.model)}"
        return ConfigurationError(
            f"model {checkpoint.model!r} has learned {checkpoint.version:,} comparisons in another shape ({what}): set "
            f"that back, or {advice}"
        )


class Retentions(NamedTuple):
    """How long snapshots stay: longer for a model with a section of its own than for those that share a pattern."""

    configuration: Configuration

    def of(self, model: str) -> Retention:
        """How long the snapshots of a model are kept."""
        matched = self.configuration.match(model)
        return OF_MANY if matched and is_pattern(matched[0]) else RETENTION


class Specs:
    """All configured models. Raises CatalogueError if one is to learn on a map that its catalogue does not have."""

    def __init__(self, configuration: Configuration, catalogues: Mapping[str, Catalogue]) -> None:
        self.configuration = configuration
        self.catalogues = catalogues
        self._specs: dict[str, Spec] = {}
        # One object for all models that see a catalogue in the same coordinates.
        self._views: dict[tuple[str, str], Catalogue] = {}
        for label, config in configuration.models.items():
            if (key := (config.catalogue, config.coordinates)) not in self._views:
                self._views[key] = _in_coordinates(label, config, catalogues)
        # A worker asks a dozen times about each model of a batch, and a pattern is slow to match.
        self.find = lru_cache(REMEMBERED)(self._find)
        self.in_parts = configuration.in_parts

    @property
    def named(self) -> list[str]:
        """Models that are configured by name, not by pattern: known before their first event."""
        return [name for name in self.configuration.models if not is_pattern(name)]

    def _find(self, model: str) -> Spec | None:
        """The spec of a model, None if nothing covers its name."""
        matched = self.configuration.match(model)
        if matched is None:
            return None
        label, config = matched
        if label not in self._specs:
            learner, catalogue = LEARNERS[config.learner], self._views[config.catalogue, config.coordinates]
            guard, max_models = self.configuration.guard, config.max_models
            settings = config.parameters, catalogue, config.digest(), guard, max_models
            self._specs[label] = Spec(
                label, learner, *settings, {}, config.parent, config.max_share_a_user, config.parts
            )
        return self._specs[label]

    def accepts(self, model: str) -> frozenset[str] | None:
        """The kinds of feedback that a model learns from, None if nothing covers its name; raises FeedbackError."""
        check_name(model)
        spec = self.find(model)
        return None if spec is None else spec.learner.accepts

    def of_stored(self, name: str) -> Spec | None:
        """The spec of what a store keeps under a name: a model, or a part of one; None if nothing covers it."""
        part = part_of(name)
        if part is None:
            return self.find(name)
        return self.find(part.model) if part.model in self.in_parts else None

    def of(self, model: str) -> Spec:
        """The spec of a model whose events were accepted, or of a part of it."""
        spec = self.find(model) or self.of_stored(model)
        assert spec is not None
        return spec


def _in_coordinates(label: str, config: ModelConfig, catalogues: Mapping[str, Catalogue]) -> Catalogue:
    try:
        return catalogues[config.catalogue].in_coordinates(config.coordinates)
    except CatalogueError as error:
        raise CatalogueError(f"models.{label}: {error}") from error
