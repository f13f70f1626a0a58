"""The current items of a model, and their current attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from omdml.errors import CatalogueError, ConfigurationError

if TYPE_CHECKING:
    from omdml.streams.protocols.catalogue import Catalogue
    from omdml.workers.configuration import config
    from omdml.workers.operate.export.source import AttributeTable


def items_now(configuration: config.Configuration, model: str) -> Callable[[], Catalogue]:
    """A function that returns the model's catalogue as it is now: with added items, or the one that replaced it.

    Raises ConfigurationError if no configured model covers the name. The function raises CatalogueError.
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
            # The catalogue was replaced, or is gone: open what is there now.
            opened = open_specs(configuration).of(model).catalogue
        return opened

    return now


def attributes_now(
    configuration: config.Configuration, model: str, items: Callable[[], Catalogue]
) -> Callable[[], AttributeTable | None]:
    """A function that returns the attributes of the model's items as they are now, including changes of items."""
    from omdml.workers.node.attributes.layers import ChangedAttributes
    from omdml.workers.wiring.node import attributes_of

    table, changed = attributes_of(configuration), ChangedAttributes()
    return lambda: changed.over(table(model), items())
