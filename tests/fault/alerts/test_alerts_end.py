"""Alerts fire for a fault that is really made, end once it is removed, and no others fire.

The faults happen one after the other to one service under one Prometheus. ``test_alerts.py``, ``test_slow_alerts.py``
and ``test_route_alerts.py`` have faults of further alerts, which are seen to fire.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.fault.alerts.fault import PREFIX, trial
from tests.fault.alerts.faults import FAULTS
from tests.fault.alerts.service import WatchedService
from tests.support.processes import ROOT
from tests.support.servers.rules import ALERTS


class Services:
    """The service that faults happen to. What a failed test leaves broken is replaced."""

    def __init__(self, folders, kafka):
        self._folders, self._kafka, self._watched = folders, kafka, None

    @contextmanager
    def service(self, new_topic) -> Iterator[WatchedService]:
        try:
            if self._watched is None:
                self._watched = WatchedService(self._folders.mktemp("watched"), self._kafka, new_topic)
                self._watched.begin()
            yield self._watched
        except BaseException:
            self.close()
            raise

    def close(self):
        if self._watched:
            self._watched.close()
        self._watched = None


@pytest.fixture(scope="module")
def services(tmp_path_factory, kafka):
    services = Services(tmp_path_factory, kafka)
    yield services
    services.close()


@pytest.mark.deep
@pytest.mark.xdist_group("alerts")
@pytest.mark.parametrize("name", FAULTS)
def test_alerts_of_a_fault_fire_and_end_with_it_and_no_others_do(services, new_topic, name):
    with services.service(new_topic) as service:
        trial(FAULTS[name], service)


def test_every_alert_has_a_real_fault():
    fired = {PREFIX + alert for fault in FAULTS.values() for alert in fault.alerts}
    for name in ("test_alerts", "test_slow_alerts", "test_route_alerts"):
        text = (ROOT / f"tests/fault/alerts/{name}.py").read_text()
        without_silence = re.sub(r"\.silent\(.*|\w+ not in .*firing\(\).*", "", text)
        fired |= set(re.findall(r"Omdml\w+", without_silence))
    assert ALERTS.keys() == fired
