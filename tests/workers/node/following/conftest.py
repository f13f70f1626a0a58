"""A shop whose model has learned 40 events, and is live."""

from __future__ import annotations

import pytest

from tests.support.shops import Shop


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.learn(40)
    shop.publish()
    return shop
