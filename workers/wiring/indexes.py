"""Indexes in vector databases, by their addresses."""

from __future__ import annotations

import re

from omdml.errors import ConfigurationError
from omdml.streams.addresses import shown
from omdml.streams.protocols.index import VectorIndex

POSTGRESQL = ("postgresql://", "postgres://")


def open_index(address: str, name: str | None, model: str, searched: str) -> VectorIndex:
    """The index of a model at an address; its name is the model's if none is given.

    Raises ConfigurationError.
    """
    name = name or name_of(model)
    if address.startswith(POSTGRESQL):
        from omdml.streams.indexes.postgresql import PostgresIndex

        return PostgresIndex(address, name, hnsw=searched == "hnsw")
    raise ConfigurationError(f"--to {shown(address)}: expected postgresql://USER@HOST/DATABASE")


def name_of(model: str) -> str:
    """A model's name as databases take it: ``Shop/EU`` becomes ``omdml_shop_eu``."""
    return "omdml_" + re.sub(r"[^a-z0-9]+", "_", model.lower()).strip("_")
