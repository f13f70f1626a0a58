"""A worker lends threads to refreshes."""

from __future__ import annotations

import subprocess
import sys

REFRESHED = """
import threading
from omdml import blas
from omdml.workers.configuration import process
process.lend_threads()
meeting = threading.Barrier(2, timeout=60)
def compute(expert):
    meeting.wait()
    return expert, threading.current_thread().name.rsplit("_")[0]
print(blas.side_by_side(compute, ("items", "far")))
from threadpoolctl import threadpool_info
print({pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"})
"""


def test_both_experts_run_at_once_each_on_one_blas_thread():
    command = [sys.executable, "-c", REFRESHED]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert answer.stdout.splitlines() == ["[('items', 'omdml-refresh'), ('far', 'omdml-refresh')]", "{1}"]
