"""The configured models as they are now, for a node: catalogues with what was added, events as workers take them."""

from __future__ import annotations

import threading

import structlog

from omdml.errors import CatalogueError, ConfigurationError, FeedbackError
from omdml.feedback import AnyFeedback
from omdml.snapshot import Snapshot
from omdml.streams.protocols.catalogue import Catalogue
from omdml.workers.configuration.specs import Spec, Specs
from omdml.workers.events.validation import check

log = structlog.get_logger(__name__)


class CurrentModels:
    """The configured models with their catalogues as they are now. Any number of threads may ask.

    If the catalogue cannot be refreshed, for example because another generation took its place, the opened one stays.
    """

    def __init__(self, specs: Specs) -> None:
        self._specs = specs
        self._looking = threading.Lock()
        # What was logged last of each catalogue, by its generation.
        self._logged: dict[str, str] = {}

    def catalogue(self, model: str) -> Catalogue:
        """The catalogue of a model, with the items added since; raises ConfigurationError for an unknown model."""
        spec = self._spec(model)
        self._refresh(spec)
        return spec.catalogue

    def first(self, model: str) -> Snapshot:
        """What a worker would publish of a model before its first event; raises StartError, ConfigurationError."""
        spec = self._spec(model)
        return Snapshot(
            model=model,
            learner=spec.learner.name,
            version=0,
            generation=spec.catalogue.generation,
            event_time=None,
            oldest_event_time=None,
            progress={},
            metric=spec.first_metric(),
        )

    def parent(self, model: str) -> str:
        """The name of a model's parent; empty if it has none."""
        spec = self._specs.find(model)
        return spec.parent if spec else ""

    def check(self, event: AnyFeedback) -> None:
        """Raise FeedbackError if a worker would make a dead letter of this event."""
        try:
            check(event, self._specs)
        except FeedbackError as error:
            spec = self._specs.find(event.model)
            if spec is None or error.reason != "unknown_item" or not self._refresh(spec):
                raise
            check(event, self._specs)

    def _spec(self, model: str) -> Spec:
        """The specification of a model; raises ConfigurationError if none covers its name."""
        spec = self._specs.find(model)
        if spec is None:
            raise ConfigurationError(f"no model {model!r} is configured")
        return spec

    def _refresh(self, spec: Spec) -> int:
        """Take in what was added to a catalogue; returns how many items. If that fails, the reason is logged once."""
        generation = spec.catalogue.generation
        with self._looking:
            try:
                added = spec.catalogue.refresh()
                self._logged.pop(generation, None)
                return added
            except CatalogueError as error:
                if self._logged.get(generation) != str(error):
                    self._logged[generation] = str(error)
                    log.warning(
                        "catalogue_not_refreshed",
                        reason=str(error),
                        action="the node goes on with the items that it has",
                        hint="restart the node to open what is there now",
                    )
                return 0
