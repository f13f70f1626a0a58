"""Which models can be learned in parts: those whose state is a sum over their events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omdml.errors import ConfigurationError
from omdml.streams.part_names import SEPARATOR, part_name, part_of
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


def check_parts(name: str, parts: object, learner: str, options: Mapping[str, Any], parent: str, share: float) -> None:
    """Raise ConfigurationError if this model cannot have this option ``parts``, saying why."""
    where = f"models.{name}.parts"
    if not isinstance(parts, bool):
        raise ConfigurationError(f"{where} is {parts!r}, expected true or false")
    if not parts:
        return
    why = ""
    if is_pattern(name):
        why = "a pattern covers many models, which partitions share anyway: give the one hot model a section of its own"
    elif learner != "dca":
        why = f"only the state of dca is a sum that can be made in parts, and this is {learner}: set learner = 'dca'"
    elif options.get("memory"):
        why = f"with memory = {options['memory']} sums fade with each event, in its order: leave memory out"
    elif parent:
        why = f"what the parent {parent!r} counts for is learned event by event: leave the parent out"
    elif share < 1:
        why = "max_share_a_user depends on the order of all events: leave it out"
    elif not can_be_kept(part_name(name, LARGEST)):
        why = f"names of its parts would be longer than {MAX_NAME} characters (percent-encoded): choose a shorter name"
    if why:
        raise ConfigurationError(f"{where}: {why}")
