"""Faults of the long run (``make chaos``) that no other test here injects: models over several partitions, two workers,
events that keep coming. Afterwards every event is learned once, in the order of the log."""

from __future__ import annotations

import pytest

from omdml.errors import SourceError
from tests.fault.chaos.breaking import networks, rebalances
from tests.fault.chaos.faults import one_after_the_other, trial
from tests.fault.chaos.load import Load, Sender
from tests.fault.chaos.servers import Servers
from tests.support.deep import deep_after
from tests.support.processes import wait_for

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


class GivesUpOnce:
    """A sink that gives up its events when it is first asked, as one does if Kafka is away too long."""

    def __init__(self):
        self.held, self.written, self.away = [], [], True

    def send(self, value, key=None, headers=()):
        self.held.append(int(dict(headers)["number"]))

    def flush(self, timeout_s=30.0):
        held, self.held = self.held, []
        if self.away:
            self.away = False
            raise SourceError(
                f"{len(held)} events for topic 'feedback' at kafka:9092 could not be written. The first: ..."
            )
        self.written += held


def test_events_that_their_sender_gave_up_are_not_called_lost():
    sink = GivesUpOnce()
    load = Load([Sender(sink)], [Sender(sink)], ["shop"], rate=1000)
    wait_for(lambda: sink.written, "events that are written", 60)
    sent = load.end()
    assert load.given_up
    assert load.given_up.isdisjoint(sink.written)
    assert load.given_up.union(sink.written) == set(range(sent))
