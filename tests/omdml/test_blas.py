"""BLAS can be limited to one thread, for a while or for good. Independent computations may have several."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from omdml import blas
from omdml.engines.second_order.discriminant import ONE_BY_ONE, discriminant_rows

COUNTED = """
from threadpoolctl import threadpool_info
from omdml.blas import one_blas_thread, stay_on_one_blas_thread
def threads():
    return {{pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}}
{before}
with one_blas_thread():
    print(threads() == {{1}}, end=" ")
print(threads() == {{1}})
"""


@pytest.mark.parametrize(
    ("before", "expected"), [("", "True False"), ("stay_on_one_blas_thread()", "True True")], ids=["a while", "always"]
)
def test_blas_has_one_thread_for_a_while_or_always(before, expected):
    command = [sys.executable, "-c", COUNTED.format(before=before)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env={"OPENBLAS_NUM_THREADS": "2"})
    assert answer.stdout.strip() == expected


def test_computations_run_one_after_the_other_unless_threads_are_lent(monkeypatch):
    assert blas.side_by_side(lambda thing: (thing, threading.get_ident()), "ab") == [
        (thing, threading.get_ident()) for thing in "ab"
    ]
    meeting = threading.Barrier(2, timeout=30)
    with ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(blas, "_apply", pool.map)
        # Each waits for the other.
        assert sorted(blas.side_by_side(lambda _: meeting.wait(), "ab")) == [0, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_have_the_same_bytes_on_several_threads(dtype, monkeypatch):
    draw, d = np.random.default_rng(3), ONE_BY_ONE + 5
    near, *others = (x.T @ x / len(x) for x in draw.normal(0, [[[0.8]], [[1]], [[1.1]]], (3, 400, d)))
    compared = near, dict(zip(("items", "far"), others, strict=True)), 0.05, dtype
    expected, threads = discriminant_rows(*compared), set()
    with ThreadPoolExecutor(2, initializer=lambda: threads.add(threading.get_ident())) as pool:
        monkeypatch.setattr(blas, "_apply", pool.map)
        for _ in range(5):
            for name, rows in discriminant_rows(*compared).items():
                assert rows.tobytes() == expected[name].tobytes()
    assert threads
