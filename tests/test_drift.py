"""The alarm where a model's mistakes become more frequent."""

from __future__ import annotations

import numpy as np
from river.drift import ADWIN

from workers.drift import Drift


def scores(*shares, each=3000):
    """F of comparisons, each so many with this share of mistakes."""
    draw = np.random.default_rng(0)
    return np.concatenate([np.where(draw.random(each) < share, 1.0, -1.0) for share in shares])


def river_alarms(rows):
    """Batches of a hundred in which river's own ADWIN says that mistakes became more frequent."""
    adwin, alarms = ADWIN(), []
    for at, batch in enumerate(np.split(rows, len(rows) // 100)):
        before = adwin.estimation
        for wrong in (batch > 0).tolist():
            adwin.update(wrong)
            if adwin.drift_detected and adwin.estimation > before:
                alarms.append(at)
    return alarms


def test_it_is_rivers_adwin_told_of_mistakes_and_only_where_they_become_more_frequent():
    rows = scores(0.1, 0.4, 0.1, 0.5, 0.05)
    drift = Drift()
    alarms = [at for at, batch in enumerate(np.split(rows, len(rows) // 100)) if drift.add(batch)]
    assert alarms == river_alarms(rows)
    assert [at // 30 for at in alarms] == [1, 3]


def test_it_goes_on_from_its_bytes():
    rows = scores(0.1, 0.4)
    through, drift = Drift(), Drift()
    for one in np.split(rows, len(rows)):
        told = through.add(one)
        drift = Drift(drift.to_bytes())
        assert bool(drift.add(one)) == bool(told)
        assert drift.to_bytes() == through.to_bytes()
