"""An alarm is raised if a model's mistakes become more frequent."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from omdml.workers.model.judging.drift import LEAST_RISE, Drift
from tests.support.worlds import World, events, run_until_idle


def scores(*shares, each=3000):
    """Scores F of comparisons: for each share, ``each`` of them, of which this share are mistakes."""
    draw = np.random.default_rng(0)
    return np.concatenate([np.where(draw.random(each) < share, 1.0, -1.0) for share in shares])


def river_alarms(rows):
    """Batches of a hundred in which river's own ADWIN says that mistakes became more frequent."""
    # It is imported late, because it imports scikit-learn: more than a second of all tests' collection.
    from river.drift import ADWIN

    adwin, alarms = ADWIN(), []
    for index, batch in enumerate(np.split(rows, len(rows) // 100)):
        before = adwin.estimation
        for wrong in (batch > 0).tolist():
            adwin.update(wrong)
            if adwin.drift_detected and adwin.estimation > before:
                alarms.append(index)
    return alarms


def test_alarms_are_those_of_rivers_adwin_and_no_others():
    rows = scores(0.1, 0.4, 0.1, 0.5, 0.05)
    drift = Drift()
    alarms = [index for index, batch in enumerate(np.split(rows, len(rows) // 100)) if drift.add(batch)]
    assert [alarm // 30 for alarm in alarms] == [1, 3] == [river_alarm // 30 for river_alarm in river_alarms(rows)]
    assert all(abs(mine - rivers) <= 2 for mine, rivers in zip(alarms, river_alarms(rows), strict=True))


def alarms_after(rise, seed):
    """The messages about 20,000 comparisons with 5 % mistakes, and then 20,000 with more."""
    draw, drift = np.random.default_rng(seed), Drift()
    rows = np.where(draw.random(40_000) < np.repeat([0.05, 0.05 + rise], 20_000), 1.0, -1.0)
    return [rise.message for batch in np.split(rows, 400) if (rise := drift.add(batch))]


@pytest.mark.parametrize("seed", range(5))
def test_a_rise_of_two_points_is_not_reported_and_one_of_ten_is_once(seed):
    assert alarms_after(0.02, seed) == []
    (line,) = alarms_after(0.1, seed)
    before, after = map(float, re.findall(r"([\d.]+)%", line))
    assert (before < 7, after - before >= 100 * LEAST_RISE) == (True, True)


def test_rivers_own_adwin_reports_a_rise_of_two_points():
    draw = np.random.default_rng(1)
    rows = np.where(draw.random(40_000) < np.repeat([0.05, 0.07], 20_000), 1.0, -1.0)
    assert river_alarms(rows)


def test_a_drift_detector_goes_on_from_its_bytes():
    rows = scores(0.1, 0.4)
    through, drift = Drift(), Drift()
    for row in np.split(rows, len(rows)):
        alarm = through.add(row)
        drift = Drift(drift.to_bytes())
        assert bool(drift.add(row)) == bool(alarm)
        assert drift.to_bytes() == through.to_bytes()


def test_the_history_names_the_learner_whose_mistakes_rose(tmp_path):
    world = World(tmp_path)
    clicks = [json.loads(event) for event in events(600, seed=1)]
    inverted = [{**event, "relevant": event["irrelevant"], "irrelevant": event["relevant"]} for event in clicks]
    world.send(*events(1500), *(json.dumps(event).encode() for event in inverted))
    run_until_idle(world.worker())
    lines = [line["reason"] for line in world.store.history("shop") if line["what"] == "drift"]
    assert lines
    assert all(re.match(r"lomdml, noticed at version [\d,]+: mistakes went from ", line) for line in lines)


def test_a_rise_is_noticed_at_the_same_comparison_however_they_are_batched():
    rows = scores(0.1, 0.4)
    through, whole = Drift(), Drift()
    (alone,) = (number for number, row in enumerate(rows, start=1) if through.add(row[None]))
    assert len(rows) - whole.add(rows).later == alone
