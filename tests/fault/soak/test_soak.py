"""The soak tells what grows from what is flat."""

from __future__ import annotations

import os

import pytest

from tests.fault.soak.plot import drawn
from tests.fault.soak.samples import MEASURES, Sample, growth, lived_throughout, quarters, sample

MEMORY, FILES, THREADS = MEASURES


def samples(memory=lambda at: 250.0, files=lambda at: 16, threads=lambda at: 7, minutes=15):
    return [Sample(number, 1, memory(number), files(number), threads(number)) for number in range(0, minutes * 60, 5)]


@pytest.mark.parametrize("minutes", [15, 30])
def test_a_climb_of_a_megabyte_a_minute_is_not_flat(minutes):
    climbs = samples(memory=lambda at: 250 + at / 60, minutes=minutes)
    assert "memory, MB: +60 an hour" in growth(climbs, MEMORY)
    assert growth(climbs, FILES) == ""


def test_what_fills_at_the_beginning_and_what_goes_up_and_down_is_flat():
    assert growth(samples(memory=lambda at: 250 + min(at, 300)), MEMORY) == ""
    assert growth(samples(files=lambda at: 16 + 5 * (at // 30 % 2)), FILES) == ""


def test_a_file_that_is_not_closed_now_and_then_is_noticed():
    assert growth(samples(files=lambda at: 16 + at // 60), FILES)
    assert growth(samples(threads=lambda at: 7 + at // 120), THREADS)


def test_what_a_process_holds_is_what_the_kernel_says():
    now = sample(os.getpid(), 0.0)
    with open(os.devnull):
        assert sample(os.getpid(), 1.0).files == now.files + 1
    assert now.threads >= 1
    assert now.memory_mb > 10


def test_a_process_that_was_started_again_is_drawn_as_two_lines():
    again = [*samples()[:50], *(sample._replace(pid=2) for sample in samples()[50:])]
    assert not lived_throughout(again)
    assert quarters(again, "files") == [16, 16, 16, 16]
    picture = drawn({"worker 1": samples(), "worker 2": again}, "a soak")
    assert picture.count("<polyline") == 3 * len(MEASURES)
