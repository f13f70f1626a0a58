"""Indexes in vector databases, by their addresses."""

from __future__ import annotations

import re
from importlib.metadata import entry_points

from omdml.errors import ConfigurationError
from omdml.streams.addresses import shown
from omdml.streams.protocols.index import VectorIndex

POSTGRESQL = ("postgresql", "postgres")
# In this group of entry points, packages offer other kinds of indexes. The name of an entry point is what stands before
# the colon of an address.
GROUP = "omdml.indexes"


def open_index(address: str, name: str | None, model: str, approximate: bool, option: str = "--to") -> VectorIndex:
    """The index of a model at an address; its name is the model's if none is given. ``option`` said the address.

    Raises ConfigurationError.
    """
    name = name or name_of(model)
    kind, _, rest = address.partition(":")
    if kind in POSTGRESQL and rest.startswith("//"):
        from omdml.streams.indexes.postgresql.writer import PostgresIndex

        return PostgresIndex(address, name, approximate)
    if kind == "lancedb" and rest:
        from omdml.streams.indexes.lancedb.writer import LanceIndex

        return LanceIndex(rest, name, approximate)
    others = entry_points(group=GROUP)
    if kind in others.names:
        return others[kind].load()(address, name, approximate)
    expected = [
        "postgresql://USER@HOST/DATABASE",
        "lancedb:FOLDER",
        *(f"{other}:..." for other in sorted(others.names)),
    ]
    raise ConfigurationError(f"{option} {shown(address)}: expected one of {', '.join(expected)}")


def index_of_candidates(model: str, address: str) -> VectorIndex:
    """The index that a model's candidates come from; the name of the index may follow the address, after a ``#``.

    Raises ConfigurationError.
    """
    place, _, name = address.partition("#")
    return open_index(place, name or None, model, True, f"models.{model}.candidates")


def name_of(model: str) -> str:
    """A model's name as databases take it: ``Shop/EU`` becomes ``omdml_shop_eu``."""
    return "omdml_" + re.sub(r"[^a-z0-9]+", "_", model.lower()).strip("_")
