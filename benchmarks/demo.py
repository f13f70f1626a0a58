"""The demo with each learner: mean average precision before and after, and how long a mark takes to be live."""

from __future__ import annotations

import re
import subprocess
import sys

from rich.console import Console
from rich.table import Table

from omdml.learners import LEARNERS

LIMIT_S = 900
LAST = re.compile(r"([\d.]+) -> ([\d.]+) after [\d,]+ comparisons; click-to-live p50 (\d+) ms, p99 (\d+) ms")


def main(console: Console) -> None:
    """Print how the measure rose with each learner, then the table."""
    table = Table("learner", "before", "after", "p50", "p99", title="omdml demo")
    for learner in LEARNERS:
        course, end = demo(learner)[-2:]
        console.print(f"{learner}: {course}", markup=False)
        last = LAST.search(end)
        if not last:
            raise RuntimeError(f"omdml demo --learner {learner} ended with {end!r}")
        before, after, p50, p99 = last.groups()
        table.add_row(learner, before, after, f"{p50} ms", f"{p99} ms")
    console.print(table)


def demo(learner: str) -> list[str]:
    """Run the demo; returns the lines that it prints."""
    command = [sys.executable, "-m", "omdml.workers.cli", "demo", "--learner", learner]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return done.stdout.splitlines()
