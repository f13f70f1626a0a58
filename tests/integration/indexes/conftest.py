"""A shop whose model is brought to an index."""

import pytest

from tests.support.catalogues.indexes import Lance, Postgres, Sqlite
from tests.support.nodes import CONFIGURATION, stored_shop
from tests.support.shops import Shop


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.learn()
    shop.publish()
    return shop


@pytest.fixture(params=["postgresql", "lancedb", "shown"])
def database(request, tmp_path):
    """An index of each kind: those that omdml has, and the one that deploy/VECTORS.md shows."""
    if request.param == "postgresql":
        return Postgres(request.getfixturevalue("postgres").url)
    return Lance(tmp_path / "vectors") if request.param == "lancedb" else Sqlite(tmp_path / "vectors")


@pytest.fixture(params=["postgresql", "lancedb"])
def real_database(request, tmp_path):
    """An index of each kind that omdml has."""
    if request.param == "lancedb":
        return Lance(tmp_path / "vectors")
    return Postgres(request.getfixturevalue("postgres").url)


@pytest.fixture
def installed(tmp_path):
    """A shop that processes find by its configuration."""
    shop = stored_shop(tmp_path)
    (tmp_path / "omdml.toml").write_text(CONFIGURATION.format(port=1))
    return shop
