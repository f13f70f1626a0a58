"""BLAS computes on one thread for a while, or always, if it is told to."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
