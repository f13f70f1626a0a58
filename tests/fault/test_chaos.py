"""Faults of the long run (``make chaos``) that no other test here injects: models over several partitions, two workers,
events that keep coming. Afterwards every event is learned once, in the order of the log."""

from __future__ import annotations

import pytest

from tests.fault.chaos import networks, rebalances
from tests.fault.chaos.faults import one_after_the_other, trial
from tests.fault.chaos.servers import Servers
from tests.support.deep import deep_after

# Each list happens to one service, whose store and workers are those of its first fault.
SEQUENCES = [["store-lost"], ["clocks", "grow", "cut-log", "storm", "books"], ["disk-full", "torn"]]
pytestmark = pytest.mark.xdist_group("chaos")


@pytest.fixture(scope="module")
def servers():
    with Servers() as started:
        yield started


@pytest.mark.parametrize("names", deep_after(1, SEQUENCES), ids=", ".join)
def test_after_faults_under_load_every_event_is_learned_once(names, servers, tmp_path, monkeypatch):
    # It is longer than the session timeout, so another worker takes over.
    monkeypatch.setattr(networks, "CUT_S", 8.0)
    monkeypatch.setattr(rebalances, "STORM_S", 5.0)
    result = trial(one_after_the_other(names), 1, 0, servers, tmp_path)
    assert (result.verdict.lost, result.verdict.doubled) == (0, 0)
    assert result.verdict.letters > 0
