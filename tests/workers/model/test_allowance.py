"""A rate limit that saves up what was not used."""

from __future__ import annotations

from omdml.workers.model.allowance import Allowance


def test_writing_more_than_the_allowance_is_made_up_for_later():
    allowance = Allowance(rate=100, burst_s=2)
    allowance.grow(0.0)
    allowance.spend(500)
    for now, left in ((1.0, -200), (2.0, -100), (4.5, 150), (9.0, 200)):
        allowance.grow(now)
        assert allowance.left == left
