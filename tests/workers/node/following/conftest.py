"""A shop whose model has learned 40 events, and is live."""

from __future__ import annotations

import pytest

from tests.support.shops import Shop


@pytest.fixture
def shop(tmp_path):
    made = Shop(tmp_path)
    made.learn(40)
    made.publish()
    return made
