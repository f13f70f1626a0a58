"""Which models a node is configured for: names, and patterns of names."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

from omdml.errors import quoted
from omdml.messages.suggestion import suggestion
from omdml.streams.part_names import part_of
from omdml.workers.configuration.config import is_pattern
from omdml.workers.configuration.model_names import can_be_kept
from omdml.workers.node.searching.options import SearchError


class ConfiguredModels:
    """The models that a node answers for.

    Attributes
    ----------
    all
        Names and patterns, in the order in which they are configured.
    named
        Models that are configured by name.
    patterns
        Patterns, each of which covers any number of models.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.all = list(names)
        self.named = [name for name in self.all if not is_pattern(name)]
        self.patterns = [name for name in self.all if is_pattern(name)]

    def label(self, model: str) -> str:
        """What metrics call a model: the name or the pattern that covers it."""
        return self._cover(model) or model

    def asked_for(self, model: str | None) -> str:
        """The model that a request names; None means the only one. Raises SearchError."""
        if model is not None:
            return model
        if len(self.named) == 1 and not self.patterns:
            return self.named[0]
        configured = ", ".join(self.all) or "none"
        raise SearchError(
            'which model? Name it: &model=NAME in a URL, "model": "NAME" in a body, --model NAME in a command; '
            f"configured: {configured}",
            "invalid",
        )

    def find(self, model: str | None) -> str:
        """The model that a request names and that is configured; None means the only one. Raises SearchError."""
        name = self.asked_for(model)
        self.require(name)
        return name

    def require(self, model: str) -> None:
        """Raise SearchError ``unknown_model`` if no name or pattern covers a model."""
        if self._cover(model) is None:
            raise SearchError(f"no model {quoted(model)} is configured{suggestion(model, self.all)}", "unknown_model")

    def _cover(self, model: str) -> str | None:
        if model in self.named:
            return model
        # No event can name these, so there never is such a model.
        if part_of(model) or not can_be_kept(model):
            return None
        return next((pattern for pattern in self.patterns if fnmatch.fnmatchcase(model, pattern)), None)
