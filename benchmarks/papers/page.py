"""What a table tells: text, grids, plots, claims that the run must bear out; as Markdown and on a console."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

PLOTS = Path(__file__).with_name("plots")
PAGE = Path(__file__).with_name("README.md")
INTRODUCTION = """\
# The papers' tables, run again

`make papers` computes every table below, draws the plots and writes this page (about {minutes:.0f} minutes of processor
time that all cores share; what has been computed is kept, so a second run takes seconds and an interrupted one goes
on). `python -m benchmarks.papers NAME` runs one. Where a paper's data cannot be had, other data stand in, and the
section says which: such figures show the same order or shape or they do not, but they are not the paper's. Figures are
means ± standard deviations over the seeds named. Hyperparameters are chosen on a validation part, never on test
queries. A claim that a run does not bear out is struck through, and the command fails.
"""


class Grid(NamedTuple):
    """A table: ours beside what was published."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Plot(NamedTuple):
    """A picture in ``plots/``; ``draw`` fills a matplotlib Figure."""

    name: str
    alt: str
    draw: Callable[[Any], None]
    size: tuple[float, float] = (7.0, 4.0)  # inches


class Claim(NamedTuple):
    """A sentence of the verdict, and whether this run bears it out."""

    text: str
    holds: bool


Block = str | Grid | Plot | Claim


def spread(values: Iterable[float], digits: int = 3) -> str:
    """Mean ± standard deviation."""
    found = np.array(list(values), float)
    return f"{found.mean():.{digits}f} ± {found.std(ddof=1):.{digits}f}"


def listed(values: Iterable[float]) -> str:
    """Numbers that validation chooses between, as text."""
    return ", ".join(f"{value:g}" for value in values)


def markdown(block: Block) -> str:
    """As the page shows it."""
    match block:
        case Grid():
            lines = [f"**{block.title}**", "", *map(row, (block.columns, ["---"] * len(block.columns), *block.rows))]
            return "\n".join(lines)
        case Plot():
            return f"![{block.alt}](plots/{block.name}.png)"
        case Claim():
            text = " ".join(block.text.split())
            return f"- {text}" if block.holds else f"- ~~{text}~~ (not in this run)"
    return block.strip()


def row(cells: Sequence[str]) -> str:
    """Of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def show(console: Console, block: Block) -> None:
    """Grids and claims on a console; text and pictures are the page's."""
    if isinstance(block, Grid):
        table = Table(*block.columns, title=block.title)
        for cells in block.rows:
            table.add_row(*cells)
        console.print(table)
    elif isinstance(block, Claim):
        console.print(markdown(block), markup=False)


def draw(plot: Plot) -> bool:
    """Write a plot's PNG; False where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=plot.size, dpi=110, layout="constrained")
    plot.draw(figure)
    PLOTS.mkdir(exist_ok=True)
    figure.savefig(PLOTS / f"{plot.name}.png", metadata={"Software": None})
    return True


def section(title: str, command: str, minutes: float, blocks: Sequence[Block]) -> str:
    """One table's part of the page."""
    head = f"## {title}\n\n`python -m benchmarks.papers {command}`; {minutes:.1f} minutes of one core.\n"
    return "\n".join([head, *(markdown(block) + ("" if isinstance(block, Claim) else "\n") for block in blocks)]) + "\n"


def publish(sections: dict[str, str], order: Sequence[str]) -> None:
    """Put these sections, by name, into the page; those of other tables in ``order`` stay as they are."""
    held = {}
    if PAGE.is_file():
        held = dict(re.findall(r"<!-- table (\w+) -->\n(.*?)(?=<!-- |\Z)", PAGE.read_text(), re.DOTALL))
    known = {name: text.strip() for name, text in {**held, **sections}.items() if name in order}
    minutes = sum(float(found) for found in re.findall(r"; ([\d.]+) minutes of one core\.", "\n".join(known.values())))
    parts = [f"<!-- table {name} -->\n{known[name]}\n" for name in order if name in known]
    PAGE.write_text("\n".join([INTRODUCTION.format(minutes=minutes), *parts]))
