"""Run tables of the papers, or all of them: compute what is not kept yet, print it, and put it into the page.

Exit code: 0; 1 if a claim does not hold; 2 for a table that there is not; 3 if a table is left out of the page,
since its data or a package are absent or a file cannot be written; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from types import ModuleType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.papers import TABLES, module_of
from benchmarks.papers.cache import Kept, kept_result, name_of, needs, unit_of
from benchmarks.papers.page import Claim, Plot, draw, publish, section, show
from benchmarks.quality import data_folder

BAR = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
# Exit codes: a claim or a run failed, and a table was left out.
FAILED, LEFT_OUT = 1, 3


def main(arguments: list[str]) -> int:
    """Run these tables; returns the exit code, the highest if several hold."""
    tables = {name: importlib.import_module(module_of(name)) for name in TABLES}
    chosen = [tables[name] for name in parsed(arguments, tables)]
    console = Console(width=None if sys.stdout.isatty() else 160)
    # Ctrl-C is for this process to handle.
    deaf = (signal.SIGINT, signal.SIG_IGN)
    several = ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"), signal.signal, deaf)
    with Progress(*BAR, console=console, disable=not console.is_terminal) as progress, several as pool:
        task = progress.add_task("", total=sum(len(table.UNITS) for table in chosen))
        codes = []
        try:
            for table in chosen:
                progress.update(task, description=name_of(table))
                codes.append(attempted(console, table, pool, partial(progress.advance, task)))
        except KeyboardInterrupt:
            for child in multiprocessing.active_children():
                child.terminate()
            raise
    return max(codes)


def parsed(arguments: list[str], tables: Mapping[str, ModuleType]) -> list[str]:
    """Names of the tables to run; the help lists all."""
    titles = "\n".join(f"  {name:16}{table.TITLE}" for name, table in tables.items())
    parser = argparse.ArgumentParser(
        "python -m benchmarks.papers",
        description=__doc__,
        epilog=f"tables, in the order of the page:\n{titles}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="of those below; without any, all")
    names = parser.parse_args(arguments).tables
    unknown = [name for name in names if name not in tables]
    if unknown:
        parser.error(f"no table {unknown[0]!r}: there are {', '.join(tables)}")
    return names or list(tables)


def attempted(console: Console, table: ModuleType, pool: Executor, advance: Callable[[], None]) -> int:
    """Run one table; returns its exit code. If it cannot be run, a sentence says why."""
    absent = [f"{name}.npz" for name in table.DATA if not (data_folder() / f"{name}.npz").is_file()]
    if absent:
        return left_out(console, table, f"no {', '.join(absent)} in {data_folder()}; OMDML_DATA names another folder")
    try:
        for package in needs(table):
            importlib.import_module(package)
        return 0 if put_on_page(console, table, list(finished_units(console, table, pool, advance))) else FAILED
    except ModuleNotFoundError as error:
        return left_out(console, table, f"it needs {error.name}; pip install 'omdml[papers]' brings it")
    except OSError as error:
        way = "make it usable, or let OMDML_CACHE name another folder for what is kept"
        return left_out(console, table, f"{error.filename}: {error.strerror}; {way}")


def left_out(console: Console, table: ModuleType, reason: str) -> int:
    """Say that a table does not get onto the page, and why."""
    console.print(f"{name_of(table)} is left out: {reason}", markup=False, soft_wrap=True)
    return LEFT_OUT


def finished_units(console: Console, table: ModuleType, pool: Executor, advance: Callable[[], None]) -> Iterator[Kept]:
    """The results of a table's units, in their order. One runs on each core; of a ``TIMED`` table, one at a time."""
    already = [kept_result(table, unit) for unit in table.UNITS]
    absent = [unit for unit, there in zip(table.UNITS, already, strict=True) if there is None]
    console.print(f"{name_of(table)} begins: {len(absent)} units to compute, {len(already) - len(absent)} kept")
    began, compute_unit = time.monotonic(), partial(unit_of, table.__name__)
    computed = iter(map(compute_unit, absent) if getattr(table, "TIMED", False) else pool.map(compute_unit, absent))
    for there in already:
        yield there or next(computed)
        advance()
    console.print(f"{name_of(table)} ends: {len(absent)} computed in {time.monotonic() - began:.1f} s")


def put_on_page(console: Console, table: ModuleType, units: list[Kept]) -> bool:
    """Print a table, draw its plots, put it into the page; returns whether all its claims hold."""
    blocks = table.section([unit.result for unit in units])
    for block in blocks:
        show(console, block)
    for block in blocks:
        if isinstance(block, Plot):
            draw(block)
    minutes = sum(unit.seconds for unit in units) / 60
    publish({name_of(table): section(table, minutes, blocks)}, TABLES)
    return all(block.holds for block in blocks if isinstance(block, Claim))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("stopped: what is finished is kept, and the same command goes on")
        sys.exit(130)
