"""Names of models: what a store can keep."""

from __future__ import annotations

from urllib.parse import quote

from omdml.errors import FeedbackError
from omdml.streams.part_names import SEPARATOR, part_of

# Characters, percent-encoded. A folder's limit is 255.
MAX_NAME = 200


def can_be_kept(model: str) -> bool:
    """Whether stores can keep a model of this name."""
    return len(quote(model, safe="")) <= MAX_NAME


def check_name(model: str) -> None:
    """Raise FeedbackError for a model's name that no store could keep."""
    if not can_be_kept(model):
        raise FeedbackError(f"model name of {len(model)} characters: at most {MAX_NAME} once percent-encoded")
    if part := part_of(model):
        raise FeedbackError(
            f"model {model!r}: names that end with {SEPARATOR} and a number are reserved for parts: send the event to "
            f"{part.model!r}"
        )
