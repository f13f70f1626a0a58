"""Workers in these tests never pause, because everything that they could wait for is already there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _no_waiting() -> Iterator[None]:
    # Not by the fixture monkeypatch: a test may undo that, and fixtures of modules begin before it.
    with pytest.MonkeyPatch.context() as pauses:
        pauses.setattr("omdml.workers.learning.schedule.STOP_S", 0.0)
        pauses.setattr("omdml.workers.learning.worker.RETRY_S", 0.0)
        yield
