"""What benchmarks print, written as JSON too: ``benchmarks/evidence.py`` compares documents with it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

FOLDER = Path(__file__).resolve().parents[1] / "build" / "benchmarks"


class PrintedTable(NamedTuple):
    """A table as it was printed: cells are text."""

    title: str
    columns: list[str]
    rows: list[list[str]]


class Printout(NamedTuple):
    """What one run of a benchmark printed, how long it took, and the load average of its last 15 minutes."""

    took_s: float
    load: float
    tables: list[PrintedTable]
    lines: list[str]


class RecordingConsole(Console):
    """A console that remembers the tables and lines printed on it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._started = time.monotonic()
        self._tables: list[PrintedTable] = []
        self._lines: list[str] = []

    def print(self, *objects: Any, **options: Any) -> None:
        """Print a table, and keep its rows for :mod:`benchmarks.evidence`."""
        super().print(*objects, **options)
        for item in objects:
            if isinstance(item, Table):
                self._tables.append(printed(item))
            elif isinstance(item, str):
                text = item if options.get("markup") is False else Text.from_markup(item).plain
                self._lines += text.splitlines()

    def save(self, name: str, folder: Path = FOLDER) -> None:
        """Write what was printed so far to ``folder/NAME.json``."""
        printout = Printout(time.monotonic() - self._started, os.getloadavg()[2], self._tables, self._lines)
        content = printout._asdict() | {"tables": [table._asdict() for table in printout.tables]}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def printed(table: Table) -> PrintedTable:
    """The text of a table. A cell left empty repeats the one above it, as a reader understands it."""
    columns = [str(column.header) for column in table.columns]
    rows: list[list[str]] = []
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        above = rows[-1] if rows else [""] * len(columns)
        rows.append([str(cell) or above[number] for number, cell in enumerate(cells)])
    return PrintedTable(str(table.title or ""), columns, rows)


def read(name: str, folder: Path = FOLDER) -> Printout | None:
    """What the last run of a benchmark printed; None if it never ran here."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    content: Mapping[str, Any] = json.loads(path.read_text())
    return Printout(
        content["took_s"], content["load"], [PrintedTable(**table) for table in content["tables"]], content["lines"]
    )
