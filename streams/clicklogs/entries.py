"""What a click log's records say, whatever the format: something was shown, something was clicked."""

from __future__ import annotations

from typing import NamedTuple

from omdml.errors import FeedbackError


class Shown(NamedTuple):
    """Items that a page showed, in order. If the page is known already, they are added to it.

    ``ranks`` has a rank for each item, or is None if the items come from the top down. ``at`` is in seconds since the
    epoch. ``user`` is the person whose page it was.
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
    """A record that shows nothing and is no click. ``what`` names its kind in the plural, for the count at the end."""

    what: str


class Bad(NamedTuple):
    """A record that cannot be read."""

    error: FeedbackError


Entry = Shown | Clicked | PassedOver | Bad
