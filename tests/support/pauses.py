"""Workers in these tests never pause: what would come while they do is already there."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr("workers.learning.worker.STOP_S", 0.0)
    monkeypatch.setattr("workers.learning.worker.RETRY_S", 0.0)
