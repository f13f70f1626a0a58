"""Which models can be learned in parts: those whose state is a sum over their events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omdml.errors import ConfigurationError
from omdml.streams.part_names import SEPARATOR, part_name, part_of
from omdml.workers.configuration.checks.mistakes import Mistakes
from omdml.workers.configuration.config import is_pattern
from omdml.workers.configuration.model_names import MAX_NAME, can_be_kept, too_long

# The largest number of a partition that a name must have room for.
LARGEST = 999_999


def check_name_of_model(name: str) -> None:
    """Raise ConfigurationError for a name that is reserved for parts, or that no store can keep."""
    if not is_pattern(name) and not can_be_kept(name):
        raise ConfigurationError(f"{too_long(name)}: choose a shorter name")
    if part := part_of(name):
        raise ConfigurationError(
            f"models.{name}: names that end with {SEPARATOR} and a number are reserved for the parts of a model: "
            f"configure models.{part.model}"
        )


def check_parts(
    name: str,
    parts: object,
    learner: str | None,
    options: Mapping[str, Any],
    parent: str,
    share: float,
    mistakes: Mistakes,
) -> None:
    """Note each reason why this model cannot have this option ``parts``; ``learner`` is None if it is not known."""
    where = f"models.{name}.parts"
    if not isinstance(parts, bool):
        mistakes.note(f"{where} is {parts!r}, expected true or false")
    if parts is not True:
        return
    if is_pattern(name):
        mistakes.note(
            f"{where}: a pattern covers many models, which partitions share anyway: give the one hot model a section "
            "of its own"
        )
    elif not can_be_kept(part_name(name, LARGEST)):
        mistakes.note(
            f"{where}: names of its parts would be longer than {MAX_NAME} characters (percent-encoded): choose a "
            "shorter name"
        )
    if learner not in ("dca", None):
        mistakes.note(
            f"{where}: only the state of dca is a sum that can be made in parts, and this is {learner}: set "
            "learner = 'dca'"
        )
    elif options.get("memory"):
        mistakes.note(
            f"{where}: with memory = {options['memory']} sums fade with each event, in its order: leave memory out"
        )
    if parent:
        mistakes.note(f"{where}: what the parent {parent!r} counts for is learned event by event: leave the parent out")
    if share < 1:
        mistakes.note(f"{where}: max_share_a_user depends on the order of all events: leave it out")
