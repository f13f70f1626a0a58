"""One Spark session for all tests of this folder: its start takes longest."""

from __future__ import annotations

import pytest

from omdml.workers.operate.history.engines import opened
from tests.support.histories import History


@pytest.fixture
def history(tmp_path):
    return History(tmp_path)


@pytest.fixture(scope="session")
def spark():
    session = opened("local[2]")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
