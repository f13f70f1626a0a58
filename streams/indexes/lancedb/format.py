"""What the writer and the readers of an index in LanceDB have in common."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from omdml.errors import ConfigurationError
from omdml.streams.protocols.index import Indexed, IndexRefused

# The tag that readers check out, and the metadata of column ``id`` that hold the notes.
LIVE, NOTES = "live", "omdml"
# Where in LanceDB's own sources an error arose.
SOURCES = re.compile(r",? /\S*/\.cargo/\S*|,? /rustc/\S*")


class PastVersion(msgspec.Struct, frozen=True):
    """A version that was live: when it was made, and until when it was live, seconds since 1970."""

    made_at: float
    until: float


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in the metadata of a version of the table.

    ``changed`` is the number of rows that changed since the cells of the search structure were chosen. ``past`` are the
    versions that readers may still hold.
    """

    indexed: Indexed | None = None
    made_at: float = 0.0
    changed: int = 0
    past: tuple[PastVersion, ...] = ()


def client() -> tuple[Any, Any]:
    """LanceDB and pyarrow; raises ConfigurationError if they are missing."""
    try:
        import lancedb
        import pyarrow
    except ImportError as error:
        raise ConfigurationError("an index at lancedb:... needs LanceDB: pip install 'omdml[lancedb]'") from error
    return lancedb, pyarrow


def read_notes(table: Any) -> Notes:
    """The notes in the version of a table that is checked out; raises IndexRefused if omdml did not make it."""
    metadata = (table.schema.field("id").metadata if "id" in table.schema.names else None) or {}
    if NOTES.encode() not in metadata:
        raise IndexRefused(f"{table.name}: omdml did not make this table: name one that omdml sync made")
    return msgspec.json.decode(metadata[NOTES.encode()], type=Notes)


def quoted(text: str) -> str:
    """A text as LanceDB's SQL takes it."""
    return "'" + text.replace("'", "''") + "'"


def one_line(error: Exception) -> str:
    """An error of LanceDB's in one line, without the place in its sources."""
    return " ".join(SOURCES.sub("", str(error)).split())
