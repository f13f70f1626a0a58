"""The soak tells what grows from what is flat."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.fault.soak.plot import drawn
from tests.fault.soak.samples import MEASURES, SHOWN, Sample, growth, lived_throughout, quarters, sample, scattered
from tests.support.processes import ROOT

MEMORY, FILES, THREADS = MEASURES


def samples(
    memory=lambda second: 250.0,
    files=lambda second: 16,
    threads=lambda second: 7,
    free=lambda second: 5.0,
    minutes=15,
):
    return [
        Sample(number, 1, memory(number) + free(number), memory(number), files(number), threads(number))
        for number in range(0, minutes * 60, 5)
    ]


@pytest.mark.parametrize("minutes", [15, 30])
def test_a_climb_of_a_megabyte_a_minute_is_not_flat(minutes):
    climbs = samples(memory=lambda second: 250 + second / 60, minutes=minutes)
    assert "memory in use, MB: +60 an hour" in growth(climbs, MEMORY)
    assert growth(climbs, FILES) == ""


def test_what_fills_at_the_beginning_and_what_goes_up_and_down_is_flat():
    assert growth(samples(memory=lambda second: 250 + min(second, 300)), MEMORY) == ""
    assert growth(samples(files=lambda second: 16 + 5 * (second // 30 % 2)), FILES) == ""


def held_for_a_fault(second):
    """Megabytes that a worker holds in the place of one that is away, a minute at a time, late in the soak."""
    return 8 * (second in range(1300, 1360) or second in range(1500, 1560) or second in range(1640, 1790))


def test_what_faults_take_and_give_back_is_flat_and_a_leak_below_it_is_not():
    assert growth(samples(memory=lambda second: 250 + held_for_a_fault(second), minutes=30), MEMORY) == ""
    leak = growth(samples(memory=lambda second: 250 + second / 144 + held_for_a_fault(second), minutes=30), MEMORY)
    assert "memory in use, MB: +25 an hour" in leak


def test_memory_that_was_freed_may_go_up_and_down_but_not_be_much():
    climbs = samples(free=lambda second: 5 + second / 144, minutes=30)
    assert growth(climbs, MEMORY) == scattered(climbs) == ""
    assert "40 MB in the last quarter" in scattered(samples(free=lambda second: 40.0))


# Half of these pieces are freed, and the other half keeps malloc from giving them back.
SCATTER = """
from tests.fault.soak.held import used_mb
before = used_mb()
pieces = [bytearray(3_000) for _ in range(20_000)]
full = used_mb()
del pieces[::2]
print(full - before, full - used_mb())
"""


def test_freed_memory_that_malloc_keeps_is_not_counted_as_used():
    command = [sys.executable, "-c", SCATTER]
    took, freed = map(float, subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.split())
    assert 60 < took < 66
    assert 30 < freed < 33


def test_a_file_that_is_not_closed_now_and_then_is_noticed():
    assert growth(samples(files=lambda second: 16 + second // 60), FILES)
    assert growth(samples(threads=lambda second: 7 + second // 120), THREADS)


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
    assert picture.count("<polyline") == 3 * len(SHOWN)
