"""``python -m benchmarks.papers [TABLE ...]``: these tables, or all; computes what is not kept yet, writes the page."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from types import ModuleType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.papers import TABLES
from benchmarks.papers.cache import Kept, unit_of
from benchmarks.papers.page import Claim, Plot, draw, publish, section, show
from benchmarks.quality import data_folder

BAR = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


def main(names: list[str]) -> int:
    """Run these tables; answers the exit code: 1 where a claim does not hold, 2 for a name that there is not."""
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        print(f"no table {unknown[0]!r}: there are {', '.join(TABLES)}")
        return 2
    console = Console(width=None if sys.stdout.isatty() else 160)
    tables = {name: importlib.import_module(f"benchmarks.papers.{name}") for name in names or TABLES}
    sound = True
    deaf = (signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is this process's to hear
    several = ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"), signal.signal, deaf)
    with Progress(*BAR, console=console, disable=not console.is_terminal) as progress, several as pool:
        task = progress.add_task("", total=sum(len(table.UNITS) for table in tables.values()))
        for name, table in tables.items():
            progress.update(task, description=name)
            absent = [one for one in table.DATA if not (data_folder() / f"{one}.npz").is_file()]
            if absent:
                console.print(f"{name}: no {', '.join(absent)} here; OMDML_DATA says which folder has it. Left out.")
                continue
            units = []
            try:
                for unit in found(table, pool):
                    units.append(unit)
                    progress.advance(task)
            except KeyboardInterrupt:
                for child in multiprocessing.active_children():
                    child.terminate()
                raise
            sound &= told(console, name, table, units)
    return 0 if sound else 1


def found(table: ModuleType, pool: Executor) -> Iterator[Kept]:
    """What a table's units gave, in their order; one runs on each core, but one in all where a table is ``TIMED``."""
    one = partial(unit_of, table.__name__)
    return map(one, table.UNITS) if getattr(table, "TIMED", False) else pool.map(one, table.UNITS)


def told(console: Console, name: str, table: ModuleType, units: list[Kept]) -> bool:
    """Print a table, draw its plots, put it into the page; answers whether all its claims hold."""
    blocks = table.section([unit.result for unit in units])
    for block in blocks:
        show(console, block)
        if isinstance(block, Plot) and not draw(block):
            hint = f"plot {block.name} stays as it is: pip install 'omdml[papers]' brings matplotlib"
            console.print(hint, markup=False)
    minutes = sum(unit.seconds for unit in units) / 60
    publish({name: section(table.TITLE, name, minutes, blocks)}, TABLES)
    return all(block.holds for block in blocks if isinstance(block, Claim))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("stopped: what is finished is kept, and the same command goes on")
        sys.exit(130)
