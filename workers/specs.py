"""What a model's name means: which learner, with which parameters, on which catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from omdml.errors import ConfigurationError
from omdml.learners import LEARNERS, Learner
from omdml.snapshot import Checkpoint
from streams.protocols import Catalogue
from workers.config import Configuration, GuardConfig, is_pattern


class Spec(NamedTuple):
    """One model's part of the configuration, resolved. ``label`` is its name in metrics: the pattern's, if any."""

    label: str
    learner: type[Learner]
    parameters: dict[str, Any]
    catalogue: Catalogue
    digest: str
    guard: GuardConfig
    starts: dict[str, bytes]  # by generation: every model of a pattern starts alike, and a start may take seconds

    def fresh(self) -> Learner:
        """A learner at its start; raises StartError where the catalogue is too small for it."""
        generation = self.catalogue.generation
        if generation not in self.starts:
            learner = self.learner(dims=dict(self.catalogue.dims), **self.parameters)
            learner.start(self.catalogue.features)
            self.starts[generation] = learner.to_bytes()
        return self.learner.from_bytes(self.starts[generation])

    def resumed(self, checkpoint: Checkpoint) -> Learner:
        """The learner of a checkpoint; raises ConfigurationError where it was learned with other settings."""
        learner = self.learner.from_bytes(checkpoint.state)
        if checkpoint.configuration != self.digest or dict(learner.dims) != dict(self.catalogue.dims):
            raise ConfigurationError(
                f"model {checkpoint.model!r} was learned with other settings than the configuration's (stored: "
                f"{learner!r}): set them back, or give the new settings to a model of another name"
            )
        return learner


class Specs:
    """All configured models."""

    def __init__(self, configuration: Configuration, catalogues: Mapping[str, Catalogue]) -> None:
        self.configuration = configuration
        self.catalogues = catalogues
        self._found: dict[str, Spec] = {}

    @property
    def named(self) -> list[str]:
        """Models that are configured by name, not by pattern: known before their first event."""
        return [name for name in self.configuration.models if not is_pattern(name)]

    def find(self, model: str) -> Spec | None:
        """The spec of a model, None where nothing covers its name."""
        matched = self.configuration.match(model)
        if matched is None:
            return None
        label, config = matched
        if label not in self._found:
            learner, catalogue = LEARNERS[config.learner], self.catalogues[config.catalogue]
            self._found[label] = Spec(
                label, learner, config.parameters, catalogue, config.digest(), self.configuration.guard, {}
            )
        return self._found[label]
