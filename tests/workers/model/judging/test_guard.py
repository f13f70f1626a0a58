"""The guard: what it keeps from going live, what it lets through, and when it decides."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.metrics import CosineMetric, ProjectionMetric
from omdml.workers.configuration.config import GuardConfig
from omdml.workers.model.judging.guard import (
    FEWEST,
    NEAR,
    NEWEST,
    Guard,
    grid,
    newest,
    next_decision,
    votes,
)
from omdml.workers.model.judging.held_out_window import JudgingEvent, Window, margins_on
from omdml.workers.model.judging.leaps import not_finite, sizes, weight_moved, weights
from omdml.workers.model.judging.reason_codes import WORDS, code_of
from tests.support.deep import examples
from tests.support.worlds import DIMS, items, triplets

TABLE, _ = items()


@pytest.fixture(autouse=True)
def _always_time_for_a_look(monkeypatch):
    monkeypatch.setattr("omdml.workers.model.judging.guard.SHARE", math.inf)


# What the guard judges
def turned(angle, scale=1.0):
    """A metric that uses only the modality that shows labels at angle 0, and only the noise at a right angle."""
    weights = {"shape": math.cos(angle) ** 2, "noise": math.sin(angle) ** 2}
    return ProjectionMetric(weights, {name: scale * np.eye(size) for name, size in DIMS.items()})


def window_of(count=256, seed=0, inverted=False):
    """A window of held-out events that agree with the labels, or with the opposite if ``inverted``."""
    rows = triplets(count, seed)[:, [0, 2, 1] if inverted else [0, 1, 2]]
    window = Window([], 10)
    for row in rows.tolist():
        window.add(JudgingEvent([row]))
    return window


def decide(guard, candidate, window, held_out=256):
    """Why the guard decides that a candidate must not go live."""
    guard.decide(candidate, guard.yardstick.decided + 1, window, held_out, TABLE)
    assert guard.yardstick.withheld in ("", guard.why_withheld(candidate))
    return guard.yardstick.withheld


def quality(metric):
    """Mean margin on what was held out, each query counted once."""
    window = window_of()
    margins = margins_on(metric, window.events, TABLE)
    return votes(margins, window.query_numbers(len(margins))).mean()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("count", [0, 256])
@pytest.mark.parametrize("on", [True, False])
def test_a_metric_that_is_not_finite_never_goes_live(value, count, on):
    guard = Guard(GuardConfig(on=on), turned(0.3))
    broken = turned(0.3).matrices["shape"].copy()
    broken[0, 0] = value
    candidate = ProjectionMetric({"shape": 1.0, "noise": 0.0}, {"shape": broken, "noise": np.eye(DIMS["noise"])})
    assert "not finite" in not_finite(candidate)
    assert guard.why_withheld(candidate) == not_finite(candidate)
    assert decide(guard, candidate, window_of(count)) == not_finite(candidate)
    assert decide(guard, turned(0.3), window_of(count)) == ""


def test_a_worse_metric_is_withheld_and_a_better_one_is_not():
    guard = Guard(GuardConfig(), turned(0.6))
    assert "not as good on" in decide(guard, turned(1.2), window_of())
    assert decide(guard, turned(0.3), window_of()) == ""


def test_too_few_events_held_out_say_nothing():
    guard = Guard(GuardConfig(moved=1.0), turned(0.0))
    assert decide(guard, turned(1.5), window_of(FEWEST - 1)) == ""
    assert decide(guard, turned(1.5), window_of(FEWEST)) != ""


def test_what_is_perhaps_worse_goes_live_unless_something_was_withheld():
    reference, little, window = turned(0.2), turned(0.27), window_of(FEWEST)
    gain = margins_on(little, window.events, TABLE) - margins_on(reference, window.events, TABLE)
    drop = votes(gain, window.query_numbers(len(gain))).mean()
    assert drop < 0
    config = GuardConfig(tolerance=-0.99 * drop)
    guard = Guard(config, reference)
    assert decide(guard, little, window) == ""
    guard.yardstick.withheld = "not as good"
    assert decide(guard, little, window) != ""
    assert decide(guard, reference, window) == ""


def test_after_something_was_withheld_what_is_a_little_better_is_withheld_too():
    guard, window = Guard(GuardConfig(tolerance=0.05, moved=1.0), turned(0.0)), window_of()
    candidates = {angle: quality(turned(0.0)) - quality(turned(angle)) for angle in np.linspace(0.0, 1.2, 60)}
    slightly = max(angle for angle, lost in candidates.items() if lost < 0.04)
    worse = min(angle for angle, lost in candidates.items() if lost > 0.06)
    assert decide(guard, turned(1.2), window) != ""
    assert decide(guard, turned(worse), window) != ""
    assert decide(guard, turned(slightly), window) == ""


def test_a_live_version_that_became_worse_is_taken_back_once():
    guard, window = Guard(GuardConfig(moved=1.0), turned(0.0)), window_of()
    decide(guard, turned(0.05), window)
    assert not guard.take_back
    decide(guard, turned(1.2), window)
    assert guard.take_back
    guard.take_back = False
    decide(guard, turned(1.2), window)
    assert not guard.take_back


def test_a_version_to_be_taken_back_stays_if_a_later_decision_allows_it():
    guard, window = Guard(GuardConfig(moved=1.0), turned(0.0)), window_of()
    decide(guard, turned(1.2), window)
    decide(guard, turned(0.05), window)
    assert not guard.take_back


def test_a_leap_or_values_that_are_not_finite_take_nothing_back():
    guard = Guard(GuardConfig(), turned(0.5))
    assert "at once" in decide(guard, turned(0.5, 11.0), window_of(0))
    assert "not finite" in decide(guard, turned(0.5, np.nan), window_of())
    assert not guard.take_back


def test_a_query_that_is_asked_again_and_again_has_one_vote():
    assert votes(np.array([1.0, 0.0, 0.5, -1.0]), np.array([3, 3, 3, 7])).tolist() == [0.5, -1.0]
    assert newest(np.array([1, 2, 1, 3, 3]), 2) == 2
    assert newest(np.array([1, 2, 1, 3, 3]), 4) == 0
    window = window_of(64)
    query, near, far = window.events[0].rows[0]
    for _ in range(12):
        window.add(JudgingEvent([[query, far, near]]))
    queries = window.query_numbers(len(window.events))
    assert np.bincount(queries).max() >= 12
    assert len(votes(np.ones(len(queries)), queries)) == len({event.rows[0][0] for event in window.events})


def test_many_small_steps_down_do_not_lower_the_reference():
    guard, window, live = Guard(GuardConfig(), turned(0.0)), window_of(), turned(0.0)
    verdicts = []
    for number, angle in enumerate(np.linspace(0.0, 1.5, 300)):
        verdicts.append(decide(guard, turned(angle), window, held_out=64 * number))
        live = live if verdicts[-1] else turned(angle)
    assert quality(turned(0.0)) - quality(live) < 0.05
    first = verdicts.index(next(filter(None, verdicts)))
    assert all(verdicts[first:])


@settings(max_examples=examples(20), deadline=None)
@given(angles=st.lists(st.floats(0.0, 1.5), min_size=1, max_size=15))
def test_what_is_live_is_never_much_worse_than_the_best_reference(angles):
    guard, window, live = Guard(GuardConfig(moved=1.0), turned(0.8)), window_of(), turned(0.8)
    for number, angle in enumerate(angles):
        if not decide(guard, turned(angle), window, held_out=64 * number):
            live = turned(angle)
        assert quality(live) > quality(turned(0.8)) - 0.1


def test_a_surely_better_version_becomes_the_reference_at_once():
    guard, window = Guard(GuardConfig(), turned(0.6)), window_of()
    guard.yardstick.renewed = 256
    assert decide(guard, turned(0.0), window) == ""
    assert guard.reference.weights == turned(0.0).weights
    assert [event.expected for event in window.events] == margins_on(turned(0.0), window.events, TABLE).tolist()
    assert decide(guard, turned(0.6), window) != ""


def test_a_version_that_is_as_good_becomes_the_reference_after_a_while():
    guard, window, same = Guard(GuardConfig(), turned(0.3)), window_of(), turned(0.31)
    guard.yardstick.renewed = 256
    assert decide(guard, same, window, held_out=256 + 63) == ""
    assert guard.reference is not same
    assert decide(guard, same, window, held_out=256 + 64) == ""
    assert guard.reference is same


def test_a_worse_version_that_goes_live_does_not_become_the_reference():
    config = GuardConfig(confidence=0.6)
    worse, worst = (turned_down_by(drop * config.tolerance) for drop in (0.8, 1.3))
    guard = Guard(config, turned(0.3))
    for held_out in (1000, 2000):
        assert decide(guard, worse, window_of(), held_out) == ""
    assert quality(worst) > quality(worse) - config.tolerance
    assert decide(guard, worst, window_of()) != ""


def test_a_metric_whose_distances_overflow_is_withheld():
    huge = ProjectionMetric(turned(0.3).weights, {name: np.full((1, size), 1e308) for name, size in DIMS.items()})
    guard = Guard(GuardConfig(), turned(0.3))
    with np.errstate(all="ignore"):
        assert "margin +nan" in decide(guard, huge, window_of())


def test_if_the_newest_events_surely_agree_older_ones_are_forgotten():
    guard, window = Guard(GuardConfig(moved=1.0), turned(0.0)), window_of()
    for event in window_of(44, seed=1, inverted=True).events:
        window.add(event)
    assert decide(guard, turned(1.5), window) == ""
    assert guard.reference.weights == turned(1.5).weights
    assert NEWEST <= len(window.events) <= 60
    assert decide(guard, turned(0.0), window) != ""


@pytest.mark.parametrize("count", [10, 20, 30])
def test_a_burst_does_not_pass_for_a_change_of_mind(count):
    guard, window = Guard(GuardConfig(moved=1.0), turned(0.0)), window_of()
    for event in window_of(count, seed=1, inverted=True).events:
        window.add(event)
    assert decide(guard, turned(1.5), window) != ""
    assert len(window.events) > 200


# When it decides
def test_decisions_are_made_at_powers_of_two_and_then_at_every_step():
    result, version = [], 0
    while version < 2_000:
        result.append(version := next_decision(version, 512))
    assert result == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048]


@given(version=st.integers(0, 10_000), step=st.sampled_from([512, 1024, 2048]))
def test_the_next_decision_is_the_first_after_a_version(version, step):
    due = {1 << power for power in range(12) if 1 << power <= step} | set(range(step, 20_000, step))
    assert next_decision(version, step) == min(later for later in due if later > version)


def test_decisions_are_twice_as_dense_while_versions_are_withheld():
    guard = Guard(GuardConfig(moved=1.0), turned(0.0))
    step = guard.step
    assert guard.next_decision(5 * step) == 6 * step
    assert decide(guard, turned(1.5), window_of()) != ""
    assert guard.next_decision(5 * step) == 5 * step + step // 2
    assert decide(guard, turned(0.0), window_of()) == ""
    assert guard.next_decision(5 * step) == 6 * step


@pytest.mark.parametrize(
    ("size", "expected"), [(10, 1024), (1_359, 1024), (1_360, 2048), (3_209, 4096), (50_000, 4096)]
)
def test_a_large_model_is_decided_on_less_often(size, expected):
    assert grid(ProjectionMetric({"all": 1.0}, {"all": np.ones((50, size), np.float32)})) == expected


@pytest.mark.parametrize(("width", "times"), [(9, 1), (128, 1), (256, 3), (512, 8), (3209, 8)])
def test_a_metric_made_of_sums_is_decided_on_as_rarely_however_many_rows_it_has(width, times):
    for rows in (1, min(width, 512)):
        metric = CosineMetric({"x": width}, np.zeros(width), {"learned": np.ones((rows, width))}, {"learned": 1.0})
        assert grid(metric) == times * 1024


def test_a_look_between_two_decisions_withholds_and_leaves_nothing_behind():
    guard, window = Guard(GuardConfig(moved=1.0), turned(0.0)), window_of()
    before = msgspec.json.encode((guard.yardstick, window.events))
    assert "not as good" in guard.check_between(turned(1.5), 70, window, TABLE)
    assert not guard.is_near(71)
    assert msgspec.json.encode((guard.yardstick, window.events)) == before
    assert guard.why_withheld(turned(0.01)) == ""
    assert guard.check_between(turned(0.01), 72, window, TABLE) == ""
    assert guard.is_near(72 + NEAR)
    assert not guard.is_near(73 + NEAR)


def test_looks_may_follow_each_other_until_what_they_saved_up_is_used(monkeypatch):
    now, guard, seconds = 1000.0, Guard(GuardConfig(), turned(0.0)), 0.04

    def margins_of_a_slow_look(*_, **__):
        nonlocal now
        now += seconds
        return np.zeros(FEWEST)

    monkeypatch.setattr("omdml.workers.model.judging.guard.SHARE", 0.1)
    monkeypatch.setattr("omdml.workers.model.judging.guard.time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(Guard, "_expected", margins_of_a_slow_look)
    for has_time in (True, True, False):
        guard.check_between(turned(0.1), 70, window_of(FEWEST), TABLE)
        assert guard.has_time == has_time
    # After an hour without looks, they may take a tenth of one second. Looks that do not ask leave no debt.
    now, seconds = now + 3600, 0.15
    for _ in range(20):
        guard.check_between(turned(0.1), 70, window_of(FEWEST), TABLE)
        assert not guard.has_time
    now += 9 * seconds
    assert guard.has_time


# Leaps
@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (turned(0.5, 11.0), "the norm of .* went from .* to .* at once"),
        (turned(0.5, 1 / 11.0), "the norm of .* went from .* to .* at once"),
        (turned(1.4), "of the weight moved between modalities at once"),
    ],
    ids=["larger", "smaller", "weights"],
)
def test_a_leap_is_withheld_if_nothing_says_that_it_is_better(candidate, reason):
    guard = Guard(GuardConfig(), turned(0.5))
    assert re.search(reason, decide(guard, candidate, window_of(0)))
    assert decide(guard, turned(0.5), window_of(0)) == ""


def test_the_scale_of_rows_whose_projections_get_unit_length_is_no_leap():
    def scaled(factor):
        return CosineMetric({"x": 3}, np.zeros(3), {"items": factor * np.eye(3)[:2]}, {"items": 1.0})

    guard = Guard(GuardConfig(), scaled(1.0))
    assert decide(guard, scaled(20.0), window_of(0)) == ""


def test_a_collapse_of_many_directions_into_one_is_a_leap():
    def stretched(*sizes):
        return ProjectionMetric({"many": 1.0}, {"many": np.diag(sizes)})

    guard = Guard(GuardConfig(), stretched(*[1.0] * 12))
    assert decide(guard, stretched(3.0, *[0.01] * 11), window_of(0)).startswith("the spread of ")
    assert decide(guard, stretched(*[1.0] * 4, *[0.01] * 8), window_of(0)) == ""


def test_a_leap_goes_live_if_held_out_events_say_that_it_is_better():
    guard = Guard(GuardConfig(), turned(1.4))
    assert weight_moved(weights(turned(1.4)), weights(turned(0.1))) > guard.config.moved
    assert decide(guard, turned(0.1), window_of()) == ""


def test_a_leap_that_was_withheld_is_not_what_later_ones_are_compared_with():
    config = GuardConfig(confidence=0.6)
    slightly, worse = (turned_down_by(drop * config.tolerance) for drop in (0.4, 1.3))
    guard = Guard(config, turned(0.3))
    leap = ProjectionMetric(slightly.weights, {name: 128 * matrix for name, matrix in slightly.matrices.items()})
    assert "at once" in decide(guard, leap, window_of(), held_out=1000)
    assert decide(guard, turned(0.3), window_of()) == ""
    assert quality(worse) > quality(leap) - config.tolerance
    assert decide(guard, worse, window_of()) != ""


def turned_down_by(drop):
    """The first metric beyond the angle 0.3 whose quality is lower than there by at least ``drop``."""
    angles = np.linspace(0.3, 0.5, 80)
    return next(turned(angle) for angle in angles if quality(turned(angle)) <= quality(turned(0.3)) - drop)


def test_slow_growth_is_no_leap():
    guard = Guard(GuardConfig(), turned(0.5))
    for scale in (5.0, 25.0, 125.0):
        assert decide(guard, turned(0.5, scale), window_of(0)) == ""


def test_sizes_are_the_norm_of_every_tensor_and_the_directions_of_every_matrix():
    plain = ProjectionMetric({"shape": 0.5, "noise": 0.5}, {"shape": 2 * np.eye(4, 9), "noise": np.ones((3, 5))})
    results = [round(size, 6) for _, size in sizes(plain)]
    assert results == [4.0, 4.0, round(math.sqrt(15), 6), 1.0]
    assert weight_moved(weights(turned(0.0)), weights(turned(math.pi / 4))) == pytest.approx(0.5)


def test_decisions_are_counted_by_the_code_of_their_reason():
    guard = Guard(GuardConfig(), turned(0.3))
    broken = ProjectionMetric(turned(0.3).weights, {name: np.full((size, size), np.nan) for name, size in DIMS.items()})
    flat = {name: np.eye(size) * np.eye(size)[0] for name, size in DIMS.items()}
    for code, candidate, window in (
        ("not_finite", broken, window_of()),
        ("worse", turned(1.2), window_of()),
        ("leap_norm", turned(0.3, scale=100.0), window_of(0)),
        ("leap_spread", ProjectionMetric(turned(0.3).weights, flat), window_of(0)),
        ("weight_moved", turned(1.5), window_of(0)),
        ("ok", turned(0.3), window_of(0)),
    ):
        if code == "leap_spread":
            guard = Guard(GuardConfig(growth=5.0), turned(0.3))
        before = guard.decisions[code]
        assert code_of(decide(guard, candidate, window)) == code
        assert guard.decisions[code] == before + 1
    assert (guard.compared, guard.figures) == (None, {})
    assert decide(guard, turned(1.2), window_of()) != ""
    assert guard.compared.margin < -guard.compared.doubt < 0
    assert guard.another().decisions == {}


def test_every_reason_has_a_code_of_its_own():
    assert all(code_of(f"something {words} else") == code for code, words in WORDS.items())
    assert code_of("") == "ok"
