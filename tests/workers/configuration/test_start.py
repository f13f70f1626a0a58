"""What a process does once its start is over."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from omdml.workers.configuration import process
from omdml.workers.configuration.process import forget_start
from tests.support.waiting import comes_true


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    """Restore the garbage collector's thresholds of this process after each test."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_full_collections_pass_over_what_was_made_at_the_start() -> None:
    of_the_start = [[] for _ in range(1000)]
    before = gc.get_freeze_count()
    forget_start()
    assert gc.get_freeze_count() >= before + len(of_the_start)
    assert not any(candidate is of_the_start for candidate in gc.get_objects())


def test_a_million_objects_that_stay_cause_no_full_collection() -> None:
    forget_start()
    before = gc.get_stats()[2]["collections"]
    staying = [[] for _ in range(1_000_000)]
    assert gc.get_stats()[2]["collections"] == before
    assert len(staying) == 1_000_000


class Ring:
    """An object that names itself, so that only the garbage collector removes it."""

    def __init__(self) -> None:
        self.ring = self


def test_garbage_is_collected_even_if_few_objects_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "COLLECT_EVERY_S", 0.01)
    forget_start()
    garbage = weakref.ref(Ring())
    assert comes_true(lambda: garbage() is None, 30.0)


FREED = """
import os, time
from omdml.workers.configuration import process

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

# Pieces that go lie between pieces that stay, as rows of one model lie between those of another.
stays = []
goes = []
for _ in range(4_000):
    goes.append(bytearray(20_000))
    stays.append(bytearray(600))
most = held()
goes.clear()
process.COLLECT_EVERY_S = 0.01
process.forget_start()
until = time.monotonic() + 30
while held() > most - 40_000_000 and time.monotonic() < until:
    time.sleep(0.01)
print(held() <= most - 40_000_000)
"""


def test_memory_between_pieces_that_stay_is_given_back() -> None:
    ended = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    assert ended.stdout == "True\n"
