"""What it costs to ask the command line for help, or to get an error about the configuration."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
TIMES = 15
BAD = '[log]\nkind = "kafka"\nservrs = "localhost:9092"\n[catalogues.items]\npath = "items/"\n[models.shop]\n'
PYTHON = "python -c pass"
OMDML = "from omdml.workers.cli import main; main(prog_name='omdml')"
COMMANDS = ("--help", "worker --help", "worker --config bad.toml")


def main(console: Console) -> None:
    """Print the table; every command in turn, so that all have the same neighbours on the machine."""
    table = Table("command", "processor, p50", "wall, p50")
    table.title = f"Start of the command line, {TIMES} times each"
    commands = {PYTHON: ["pass"], **{f"omdml {words}": [OMDML, *words.split()] for words in COMMANDS}}
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bad.toml").write_text(BAD)
        for _ in range(TIMES + 1):
            for name, arguments in commands.items():
                results[name].append(spent(folder, arguments))
    for name, measured in results.items():
        # The first run of each reads files that are not in memory yet.
        processor, wall = np.median(measured[1:], axis=0)
        table.add_row(name, f"{processor:.2f} s", f"{wall:.2f} s")
    console.print(table)


def spent(folder: str, arguments: list[str]) -> tuple[float, float]:
    """Seconds of processor, and of wall time, of a Python process with these arguments."""
    before, began = _processor_s(), time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", *arguments], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, check=False,
    )  # fmt: skip
    return _processor_s() - before, time.perf_counter() - began


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
