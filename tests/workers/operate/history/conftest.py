"""One Spark session, and one cluster of Dask, for the tests of this folder that need it: their start takes longest.

They are deep, and begin one after the other in one process (``LONG`` in tests/conftest.py).
"""

from __future__ import annotations

import os

import pytest

from omdml.workers.operate.history.engines import opened
from tests.support.learning.histories import History
from tests.support.processes import ROOT


@pytest.fixture
def history(tmp_path):
    return History(tmp_path)


@pytest.fixture(scope="package")
def spark():
    pytest.importorskip("pyspark")
    # Executors import what the tests hand them.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    session = opened("local[2]")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="package")
def dask_scheduler():
    """The address of a cluster's scheduler: two processes of this machine, each with two threads."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster:
        yield cluster.scheduler_address
