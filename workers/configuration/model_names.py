"""Names of models: what a store can keep."""

from __future__ import annotations

from urllib.parse import quote

from omdml.errors import FeedbackError, quoted
from omdml.streams.part_names import SEPARATOR, part_of

# Characters, percent-encoded. A folder's limit is 255.
MAX_NAME = 200


def can_be_kept(model: str) -> bool:
    """Whether stores can keep a model of this name."""
    return stored_length(model) <= MAX_NAME


def stored_length(model: str) -> int:
    """The number of characters of a model's name as stores write it."""
    return len(quote(model, safe=""))


def too_long(model: str) -> str:
    """What is wrong with a name that no store can keep."""
    return (
        f"model {quoted(model)}: the name takes {stored_length(model)} characters once percent-encoded, expected at "
        f"most {MAX_NAME} (a letter beyond ASCII takes 6 or more)"
    )


def check_name(model: str) -> None:
    """Raise FeedbackError for a model's name that no store could keep."""
    if not can_be_kept(model):
        raise FeedbackError(too_long(model))
    if part := part_of(model):
        raise FeedbackError(
            f"model {model!r}: names that end with {SEPARATOR} and a number are reserved for parts: send the event to "
            f"{part.model!r}"
        )
