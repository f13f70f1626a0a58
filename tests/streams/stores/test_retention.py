"""Which snapshots stay when new ones come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omdml.streams.stores.retention import OF_MANY, Retention

HOUR, DAY = 3600, 86400


def times_kept(retention: Retention, times: list[float], every: int = 1) -> list[float]:
    """The times of the snapshots that stay if they are thinned out after every ``every`` of them."""
    there: dict[float, float] = {}
    for count, time in enumerate(times, 1):
        there[time] = time
        if count % every == 0 or count == len(times):
            for key in retention.superfluous(there):
                del there[key]
    return sorted(there)


def test_a_fortnight_of_publications_leaves_a_hundred_dense_ones_last() -> None:
    # A snapshot a minute, and on the last day one every ten seconds.
    first = 20_000 * DAY
    times = [first + 60.0 * count for count in range(13 * DAY // 60)]
    times += [first + 13 * DAY + 10.0 * count for count in range(DAY // 10)]
    now = times[-1]
    ages = [now - place for place in times_kept(Retention(), times, every=10)]
    assert len(ages) <= 10 + 60 + 24 + 7
    assert ages[-10:] == [10.0 * count for count in range(9, -1, -1)]
    # The last ten reach into the minute before.
    assert sum(age < HOUR for age in ages) == 10 + 59 - 1
    assert sum(HOUR <= age < DAY for age in ages) == 23
    assert sum(age >= DAY for age in ages) == 6


def test_a_model_of_many_can_go_back_by_minutes_by_hours_and_by_days() -> None:
    first = 20_000 * DAY
    times = [first + 60.0 * count for count in range(7 * DAY // 60)]
    times += [first + 7 * DAY + 10.0 * count for count in range(DAY // 10)]
    ages = [times[-1] - place for place in times_kept(OF_MANY, times, every=10)]
    assert len(ages) <= 3 + 10 + 24 + 7
    assert sum(60 <= age < HOUR for age in ages) == 9
    assert sum(HOUR <= age < DAY for age in ages) == 23
    assert sum(age >= DAY for age in ages) == 6


def test_few_snapshots_stay_however_old_they_are() -> None:
    assert times_kept(Retention(last=3), [0.0, 1.0, 400.0 * DAY]) == [0.0, 1.0, 400.0 * DAY]


def test_an_empty_history_has_nothing_superfluous() -> None:
    assert Retention().superfluous({}) == []


@pytest.mark.parametrize("ahead_s", [365 * DAY, 2 * HOUR, -2 * HOUR, -365 * DAY])
def test_a_clock_that_was_wrong_for_a_while_leaves_what_came_after_it(ahead_s: int) -> None:
    first = 20_000 * DAY
    times = [first + 60.0 * count for count in range(100)]
    wrong = [time + ahead_s for time in times[30:40]]
    stayed = times_kept(Retention(), [*times[:30], *wrong, *times[40:]], every=10)
    assert set(times[40:]) <= set(stayed)


@given(
    times=st.lists(st.integers(0, 3 * DAY), min_size=1, max_size=80, unique=True),
    every=st.integers(1, 20),
    retention=st.builds(Retention, *(st.integers(1, 4) for _ in range(4))),
)
def test_thinning_out_often_leaves_what_thinning_out_once_would(
    times: list[int], every: int, retention: Retention
) -> None:
    ordered = sorted(map(float, times))
    assert times_kept(retention, ordered, every) == times_kept(retention, ordered, every=len(ordered))
