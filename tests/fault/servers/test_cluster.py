"""Three brokers with three copies of everything: whatever happens to them, every event is learned once."""

from __future__ import annotations

import pytest

from tests.fault.chaos.faults import one_after_the_other, trial
from tests.fault.chaos.servers import ClusterServers

# All of them happen to one service, one after the other: it takes long to start.
pytestmark = [pytest.mark.deep, pytest.mark.xdist_group("cluster")]
# After "leaders" any two of the brokers lead something, so "insync-1" shows what "leader-killed" of `make chaos` does.
NAMES = ["leaders", "insync-1", "insync-2"]


@pytest.fixture
def servers(kafka_cluster):
    with ClusterServers(kafka_cluster) as started:
        yield started


def test_whatever_brokers_do_every_event_is_learned_once(servers, tmp_path):
    result = trial(one_after_the_other(NAMES), 1, 0, servers, tmp_path)
    assert (result.verdict.lost, result.verdict.doubled) == (0, 0)
