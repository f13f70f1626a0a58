"""What a test run starts in forked processes ends with it."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.deep import deep
from tests.support.processes import ROOT, die_with_parent
from tests.support.waiting import comes_true

RUN = """
import sys, time
from pathlib import Path
from tests.support.forks import ForkedProcess

print(ForkedProcess(Path(sys.argv[1]), "0", module="http.server").pid, flush=True)
time.sleep(600)
"""


@deep
def test_a_forked_process_ends_with_a_test_run_that_is_killed(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        preexec_fn=die_with_parent,
    ) as run:  # fmt: skip
        pid = int(run.stdout.readline())
        run.kill()
    assert comes_true(lambda: not os.path.exists(f"/proc/{pid}"), 60)
