"""Stores are opened by their addresses."""

from pathlib import Path

import pytest

from omdml.errors import ConfigurationError
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.memory import MemoryStore
from omdml.streams.stores.opening import open_store
from omdml.streams.stores.redis.store import RedisStore


def test_a_store_is_opened_by_its_address(tmp_path: Path) -> None:
    assert isinstance(open_store("memory:"), MemoryStore)
    assert isinstance(open_store(f"dir:{tmp_path}/deep/state"), DirectoryStore)
    for scheme in ("redis", "rediss", "valkey", "valkeys"):
        assert isinstance(open_store(f"{scheme}://localhost:1/0"), RedisStore)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "dir:",
        "postgres://u:secret@host/db",
        "redis://u:secret@host:port",
        "redis://u:secret@host/db",
        "redis://u:secret@host/0?option=secret",
        "redis://u:se/cret@host/0",
    ],
)
def test_an_invalid_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"store\.url") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
