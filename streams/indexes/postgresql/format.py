"""What the writer and the readers of an index in PostgreSQL have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from omdml.errors import ConfigurationError
from omdml.streams.protocols.index import Indexed, IndexRefused

# The table with a row for each index.
STATE = "omdml_sync"
CONNECT_S = 10
SESSION = {
    "application_name": "omdml sync",
    "connect_timeout": CONNECT_S,
    # With these a server whose machine is gone is noticed.
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


def client() -> tuple[Any, Callable[[Any], None]]:
    """The client, and what teaches a connection the type of vectors; raises ConfigurationError if one is missing."""
    try:
        import psycopg
        from pgvector.psycopg import register_vector
    except ImportError as error:
        raise ConfigurationError(
            "an index at postgresql://... needs psycopg and pgvector: pip install 'omdml[postgresql]'"
        ) from error
    return psycopg, register_vector


def decode_indexed(text: str, where: str) -> Indexed:
    """What the live side stands for, as its row says; raises IndexRefused if somebody else changed the row."""
    try:
        return msgspec.json.decode(text, type=Indexed)
    except msgspec.DecodeError as error:
        raise IndexRefused(
            f"{where}: its row in {STATE} is damaged ({error}): drop the index and its tables, and sync again"
        ) from error


def one_line(error: Exception) -> str:
    """An error of PostgreSQL's or its client's in one line."""
    diagnosis = getattr(error, "diag", None)
    return " ".join(((diagnosis and diagnosis.message_primary) or str(error)).split())


def has_nul(value: Any) -> bool:
    """Whether a text in attributes has the character U+0000, which no text of PostgreSQL's can have."""
    if isinstance(value, dict):
        return any(has_nul(part) for entry in value.items() for part in entry)
    if isinstance(value, list):
        return any(has_nul(part) for part in value)
    return isinstance(value, str) and "\0" in value
