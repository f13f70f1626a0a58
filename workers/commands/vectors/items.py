"""A model's items and their attributes, as they are whenever somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from omdml.errors import CatalogueError, ConfigurationError

if TYPE_CHECKING:
    from omdml.streams.protocols.catalogue import Catalogue
    from omdml.workers.configuration import config
    from omdml.workers.operate.export.source import Table


def items_now(configuration: config.Configuration, model: str) -> Callable[[], Catalogue]:
    """Answers the model's catalogue with the items added since, or the one that took its place.

    Raises ConfigurationError if no configured model covers the name; what it returns raises CatalogueError.
    """
    from omdml.workers.wiring.models import open_specs

    if configuration.match(model) is None:
        raise ConfigurationError(f"no configured model covers {model!r}: add it to [models]")
    opened = open_specs(configuration).of(model).catalogue

    def now() -> Catalogue:
        nonlocal opened
        try:
            opened.refresh()
        except CatalogueError:
            opened = open_specs(configuration).of(model).catalogue
        return opened

    return now


def attributes_now(
    configuration: config.Configuration, model: str, items: Callable[[], Catalogue]
) -> Callable[[], Table | None]:
    """Answers what is known of the model's items, with what changes of items said."""
    from omdml.workers.node.attributes.layers import ChangedAttributes
    from omdml.workers.wiring.node import attributes_of

    table, changed = attributes_of(configuration), ChangedAttributes()
    return lambda: changed.over(table(model), items())
