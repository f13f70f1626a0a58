"""Stores that forget what they acknowledged: every event is learned once all the same."""

from __future__ import annotations

import pytest

from tests.fault.chaos.faults import FAULTS, trial
from tests.fault.chaos.servers import Servers
from tests.support.deep import deep_after

pytestmark = pytest.mark.xdist_group("forgetful stores")


@pytest.fixture(scope="module")
def servers():
    with Servers() as started:
        yield started


# "aof-everysec" and "aof-always" of `make chaos` ask less of a worker: killed alone, a Valkey with an append-only file
# forgets nothing, however often it writes to the disk.
@pytest.mark.parametrize("name", deep_after(1, ["power-cut", "takeover", "aof-no"]))
def test_what_a_store_forgot_is_learned_again_from_the_log(name, servers, tmp_path):
    result = trial(FAULTS[name], 1, 0, servers, tmp_path)
    assert (result.verdict.lost, result.verdict.doubled) == (0, 0)
