"""A model on real files, whose log can be replayed without waiting."""

from __future__ import annotations

import pytest

from tests.support.files.replays import LoggedShop


@pytest.fixture(autouse=True)
def _no_pause_between_polls(monkeypatch):
    monkeypatch.setattr("omdml.workers.operate.replay.POLL_S", 0.0)


@pytest.fixture
def shop(tmp_path):
    return LoggedShop(tmp_path)
