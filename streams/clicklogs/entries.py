"""What a click log's records say, whatever the format: something was shown, something was clicked."""

from __future__ import annotations

from typing import NamedTuple

from omdml.errors import FeedbackError


class Shown(NamedTuple):
    """Items of a page, in order; further ones of a page that is known are added to it.

    ``ranks`` are one an item, or None if the items come from the top down. ``at`` is in seconds since the epoch,
    ``user`` whose page it was.
    """

    page: str
    query: str
    items: list[str]
    ranks: list[int] | None = None
    model: str | None = None
    at: float | None = None
    user: str | None = None


class Clicked(NamedTuple):
    """A click on an item of a page."""

    page: str
    item: str


class PassedOver(NamedTuple):
    """A record that is neither; ``what`` it is, in the plural."""

    what: str


class Bad(NamedTuple):
    """A record that cannot be read."""

    error: FeedbackError


Entry = Shown | Clicked | PassedOver | Bad
