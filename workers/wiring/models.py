"""The models that are configured, with their catalogues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omdml.errors import CatalogueError
from omdml.streams.protocols.catalogue import Catalogue
from omdml.workers.configuration.config import Configuration

# Models bring numba and scipy, a second of processor, which most commands do not need.
if TYPE_CHECKING:
    from omdml.workers.configuration.specs import Specs


def open_catalogues(configuration: Configuration) -> dict[str, Catalogue]:
    """Every catalogue by name; raises CatalogueError, naming which."""
    from omdml.streams.catalogues.opening import open_catalogue

    opened: dict[str, Catalogue] = {}
    for name, config in configuration.catalogues.items():
        try:
            opened[name] = open_catalogue(config.path)
        except CatalogueError as error:
            raise CatalogueError(f"catalogues.{name}: {error}") from error
    return opened


def open_specs(configuration: Configuration) -> Specs:
    """The configured models; raises NoModel if there is none."""
    from omdml.workers.configuration.specs import Specs

    configuration.require_models()
    return Specs(configuration, open_catalogues(configuration))
