"""What the demo tells of a model that it shows."""

from __future__ import annotations

from omdml.workers.demo.run import learned_by
from tests.support.shops import Shop


def test_before_anything_was_learned_there_is_no_mistake_rate(tmp_path):
    shop = Shop(tmp_path)
    assert learned_by(shop.snapshot(progress={"recent_mistake_rate": 0.0})).mistake_rate is None
    shop.learn(1)
    assert learned_by(shop.snapshot(progress={"recent_mistake_rate": 0.0})).mistake_rate == 0.0
