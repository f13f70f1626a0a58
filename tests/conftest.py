"""Fixtures and settings of all tests."""

import gc
import os

import pytest
import structlog
from hypothesis import settings

from deploy.local import ports
from tests.support.deep import DEEP, examples

# Tests that take a minute each and would begin last by their names: all but one process would wait for them.
# Those with Spark or Dask stand here too: so one process runs them, one after the other, in one session.
LONG = (
    "tests/deploy/test_examples.py",
    "tests/deploy/test_units_run.py",
    "tests/integration/service/test_demo.py",
    "tests/test_wheel.py",
    "tests/workers/operate/history/test_bootstrap.py::test_however_spark",
    "tests/workers/operate/history/test_bootstrap.py::test_dask",
    "tests/workers/operate/history/test_embedding.py::test_a_catalogue_embedded_with_spark",
)
# 12,000 ports are enough for 16 processes.
PORTS_A_PROCESS = 750
# A test's name shows at most so many characters of a value.
LONGEST_VALUE = 100

settings.register_profile("omdml", max_examples=examples(settings.default.max_examples), deadline=None)
settings.load_profile("omdml")


def pytest_configure(config: pytest.Config) -> None:
    """Give each process that runs tests in parallel its own ports, which it keeps for servers that are down.

    The second of two runs side by side is given the number of its first process by FIRST_PROCESS (see the Makefile).
    """
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    number += int(os.environ.get("FIRST_PROCESS", "0"))
    first = ports.FIRST + number * PORTS_A_PROCESS
    if first + PORTS_A_PROCESS <= ports.LAST:
        ports.FIRST, ports.LAST = first, first + PORTS_A_PROCESS


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Use four processes on two processors: three left a third of their time unused, because some tests wait."""
    return len(os.sched_getaffinity(0)) * 2


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a long value by how it begins: each process sends the names of all tests, and some values have megabytes."""
    if isinstance(val, str | bytes) and len(val) > LONGEST_VALUE:
        return f"{val[:LONGEST_VALUE]!a} of {len(val)}"
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with LONG. Leave out what is marked ``deep``, unless DEEP=1 or a marker expression asks for it."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
    if DEEP or config.option.markexpr:
        return
    deep = [item for item in items if item.get_closest_marker("deep")]
    if deep:
        config.hook.pytest_deselected(items=deep)
        items[:] = [item for item in items if not item.get_closest_marker("deep")]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let no collection of garbage look through all modules and tests again, which are there to stay.

    Refuse to run tests apart that share servers: pytest-xdist writes a test's group behind its id, which some versions
    of pytest do not let it do.
    """
    if session.config.getoption("loadgroup", default=False):
        apart = [item for item in session.items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid]
        assert not apart, f"this pytest does not group tests, such as {apart[0].nodeid}: install one below 9.2"
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _log_as_in_a_new_process():
    """Restore the configuration of the log after each test, because commands that run inside a test change it."""
    yield
    structlog.reset_defaults()
