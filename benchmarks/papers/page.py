"""What a table tells: text, grids, plots, claims that the run must bear out; as Markdown and on a console."""

from __future__ import annotations

import fcntl
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.papers.cache import name_of

PLOTS = Path(__file__).with_name("plots")
PAGE = Path(__file__).with_name("README.md")
WIDTH = 120  # characters
INTRODUCTION = """
`make papers` computes every table below, draws the plots and writes this page (about {minutes:.0f} minutes of processor
time that all cores share; what has been computed is kept, so a second run takes seconds and an interrupted one goes
on). `python -m benchmarks.papers NAME` runs one. Where a paper's data cannot be had, other data stand in, and the
section says which: such figures show the same order or shape or they do not, but they are not the paper's. Figures are
means ± standard deviations over the seeds named. Hyperparameters are chosen on a validation part, never on test
queries. A claim that a run does not bear out is struck through, and the command fails. Differences are those of
unrounded figures.

Claims about what a paper says begin with whether the run agrees with it or differs from it; where its result holds in
part, the verdict counts those that agree. [MATHS](../../omdml/MATHS.md) has all updates; sections name the one that
they try out.
"""
REFERENCES = {
    "LAW": "Marc T. Law. *Distance Metric Learning for Image and Webpage Comparison.* PhD thesis, Université Pierre et "
    "Marie Curie, Paris, 2015.",
    "OMDML": "Pengcheng Wu, Steven C. H. Hoi, Peilin Zhao, Chunyan Miao, Zhi-Yong Liu. *Online Multi-Modal Distance "
    "Metric Learning with Application to Image Retrieval.* IEEE Transactions on Knowledge and Data Engineering, 2016.",
    "CP-mtML": "Binod Bhattarai, Gaurav Sharma, Frederic Jurie. *CP-mtML: Coupled Projection multi-task Metric "
    "Learning for Large Scale Face Retrieval.* IEEE Conference on Computer Vision and Pattern Recognition, 2016.",
    "RANK": "Jung-Eun Lee, Rong Jin, Anil K. Jain. *Rank-based Distance Metric Learning: An Application to Image "
    "Retrieval.* IEEE Conference on Computer Vision and Pattern Recognition, 2008.",
    "SETNET": "Yujie Zhong, Relja Arandjelović, Andrew Zisserman. *Compact Deep Aggregation for Set Retrieval.* "
    "arXiv:2003.11794, 2020.",
}


MARKS = {None: "", True: "**Agrees.** ", False: "**Differs.** "}  # before a claim, by whether it agrees with the paper


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
    agrees: bool | None = None  # with the paper; None if the paper says nothing of it


Block = str | Grid | Plot | Claim


def spread(values: Iterable[float], digits: int = 3) -> str:
    """Format a mean and a standard deviation."""
    result = np.array(list(values), float)
    return f"{result.mean():,.{digits}f} ± {result.std(ddof=1):,.{digits}f}"


def listed(values: Iterable[float]) -> str:
    """Numbers that validation chooses between, as text."""
    return ", ".join(number(value) for value in values)


def number(value: float) -> str:
    """A number written in full: 0.00001, 1,000."""
    return np.format_float_positional(value, trim="-") if abs(value) < 1 else f"{value:,.10g}"


def markdown(block: Block) -> str:
    """The Markdown that the page shows."""
    match block:
        case Grid():
            lines = [f"**{block.title}**", "", *map(row, (block.columns, ["---"] * len(block.columns), *block.rows))]
            return "\n".join(lines)
        case Plot():
            return f"![{block.alt}](plots/{block.name}.png)"
        case Claim():
            text = MARKS[block.agrees] + " ".join(block.text.split())
            return filled(f"- {text}" if block.holds else f"- ~~{text}~~ (not in this run)", "  ")
    return "\n\n".join(filled(paragraph) for paragraph in block.strip().split("\n\n"))


def filled(text: str, indent: str = "") -> str:
    """A paragraph in lines of the page's width, whatever figures were put into it; code and links stay whole."""
    kept = re.sub(r"`[^`]*`|\[[^][]*\]\([^)]*\)", lambda found: found[0].replace(" ", "\0"), " ".join(text.split()))
    lines = textwrap.wrap(kept, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def row(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
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


def draw(plot: Plot) -> None:
    """Write a plot's PNG. Raises ModuleNotFoundError if matplotlib is not installed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=plot.size, dpi=110, layout="constrained")
    plot.draw(figure)
    PLOTS.mkdir(exist_ok=True)
    figure.savefig(PLOTS / f"{plot.name}.png", metadata={"Software": None})


def section(table: ModuleType, minutes: float, blocks: Sequence[Block]) -> str:
    """One table's part of the page."""
    paper = table.TITLE.split()[0]
    source = f"[{paper}](#references), MATHS {table.MATHS}" if paper in REFERENCES else f"MATHS {table.MATHS}"
    run = f"`python -m benchmarks.papers {name_of(table)}`; {minutes:.1f} minutes of one core; {source}."
    head = f"## {table.TITLE}\n\n{run}\n\n**Verdict:** {verdict(blocks)}\n"
    return "\n".join([head, *(markdown(block) + ("" if isinstance(block, Claim) else "\n") for block in blocks)]) + "\n"


def verdict(blocks: Sequence[Block]) -> str:
    """Whether what claims take from the paper came out."""
    asked = [block for block in blocks if isinstance(block, Claim) and block.agrees is not None]
    met = sum(block.agrees and block.holds for block in asked)
    if not asked:
        return "no paper's result to meet"
    if met in (0, len(asked)):
        return "the paper's result holds" if met else "the paper's result does not hold"
    return f"the paper's result holds in part ({met} of {len(asked)})"


def publish(sections: Mapping[str, str], order: Sequence[str]) -> None:
    """Put these sections, by name, into the page; others stay, last those that only another checkout's order has."""
    with PAGE.open("a+") as file:
        # Of two runs at once each keeps what the other one has written.
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        held = dict(re.findall(r"<!-- table (\w+) -->\n(.*?)(?=<!-- |\Z)", file.read(), re.DOTALL)) | dict(sections)
        text = whole({name: held[name].strip() for name in [*order, *held] if name in held})
        file.truncate(0)
        file.write(text)


def whole(sections: Mapping[str, str]) -> str:
    """The page of these sections."""
    minutes = sum(float(found) for found in re.findall(r"; ([\d.]+) minutes of one core", "\n".join(sections.values())))
    references = "\n".join(filled(f"- **{name}** {text}", "  ") for name, text in REFERENCES.items())
    return "\n".join(
        [
            f"# The papers' tables, run again\n\n{markdown(INTRODUCTION.format(minutes=minutes))}\n",
            f"{markdown(contents(sections))}\n",
            *(f"<!-- table {name} -->\n{text}\n" for name, text in sections.items()),
            f"<!-- references -->\n## References\n\n{references}\n",
        ]
    )


def contents(sections: Mapping[str, str]) -> Grid:
    """The contents of the page, with each table's verdict."""
    rows = []
    for text in sections.values():
        title = text.partition("\n")[0].removeprefix("## ")
        anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        name, _, about = title.partition(": ")
        answer = re.search(r"^\*\*Verdict:\*\* (.*)", text, re.MULTILINE)
        rows.append([f"[{name}](#{anchor})", about, answer[1] if answer else ""])
    return Grid("Contents", ["table", "about", "verdict"], rows)
