"""The section of a table on the page: text, grids, plots, and claims that the run must confirm; also on a console."""

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
# Characters of a line.
WIDTH = 120
INTRODUCTION = """
This page is for readers who know the papers, or who want to check us. Each section says what a paper did, what we did,
and what came out.

`make papers` computes every table, draws the plots and writes this page. It takes about {minutes:.0f} minutes of
processor time, which all cores share. Results are kept: a second run takes seconds, and a run that was interrupted
goes on where it stopped. `python -m benchmarks.papers NAME` runs one table.

If a paper's data cannot be had, other data stand in, and the section says which. Such figures can show the same order
or shape as the paper's, but they are not the paper's figures. Ours are means ± standard deviations over the seeds that
the section names. Differences were computed before rounding. Hyperparameters are chosen on a validation part of the
data, never on test queries.

A claim about what a paper says begins with "Agrees" or "Differs": the run agrees with the paper, or differs from it. If
a paper's result holds in part, the verdict counts the claims that agree. If a run does not confirm a claim, the claim
is struck through, and the command fails. [MATHS](../../omdml/MATHS.md) has the equations of every learner. Each section
names the parts of MATHS that it tries out.
"""
# A word and its meaning in each paragraph.
WORDS = """
triplet: "This item fits the query better than that one."

pair: Two items that fit each other, or two items that do not.

quadruplet: Two items that are closer to each other than two others.

descriptor: A vector that describes one side of an item, such as its colors. omdml calls it a modality.

metric, M, L, W: A learned distance. A matrix M gives the squared distance x'Mx of a difference x. A projection L (or W)
has M = L'L. The rank is the number of dimensions that M uses.

margin, violated: The least amount by which one distance must exceed the other. A comparison that falls short of it is
violated, and has a loss.

mAP, MAP: Mean average precision of the queries: 1, or 100%, if every item that fits comes before all others.

precision@K: The share of the first K answers that fits.

1-call@K: Whether any of the first K answers fits.

rank K: Whether the one right answer is among the first K.

nDCG@K: How near the order of the first K answers is to the best order, if items fit more or less well. 100% is the best
order.

eta, C, lambda, mu, gamma: Hyperparameters, named as in the papers. eta is the rate of a learner, which says how large
its steps are. C is the largest rate of OMDML and OASIS. In the thesis (LAW) C weighs the losses, and 1/C the
regulariser. lambda and mu are weights of regularisers. gamma is a margin in OMDML, and in CP-mtML the rate of what
tasks share, as a share of eta.

online, batch: An online learner sees the events one after another. A batch learner has all of them at once, and may go
over them many times.

principal directions: The directions in which items vary most.

PCA, WPCA: PCA projects on the first principal directions. WPCA does so, too, and divides each by its standard deviation
(whitening).

RCA, LMNN, OASIS: Other metric learners, with which OMDML is compared. RCA is by Bar-Hillel et al. (ICML 2003), LMNN by
Weinberger and Saul (JMLR 2009), OASIS by Chechik et al. (JMLR 2010; MATHS 4).

Hedge, beta: The algorithm that weights descriptors by their mistakes. beta is the factor by which a mistake lowers a
weight.

gated: A triplet is gated if the weighted sum of all descriptors violates the margin (gamma, 1 by default). Only such a
triplet changes weights (MATHS 2).

unit spread: A start that is scaled so that the mean squared distance of random pairs is 1 in each descriptor.

caltech101_20, mfeat, leaves100, yaleb, cifar10: The data sets: 2,386 pictures of 20 classes; 2,000 handwritten digits;
1,600 leaves of 100 species; 2,414 faces of 38 persons; 60,000 pictures of ten classes.
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


# What stands before a claim, by whether it agrees with the paper.
MARKS = {None: "", True: "**Agrees.** ", False: "**Differs.** "}


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
    # Inches.
    size: tuple[float, float] = (7.0, 4.0)


class Claim(NamedTuple):
    """A sentence of the verdict, and whether this run confirms it."""

    text: str
    holds: bool
    # Whether it agrees with the paper; None if the paper says nothing of it.
    agrees: bool | None = None


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
    # Code and links get a character that is no white space for each blank, until the lines are made.
    joined = re.sub(r"`[^`]*`|\[[^][]*\]\([^)]*\)", lambda match: match[0].replace(" ", "\0"), " ".join(text.split()))
    lines = textwrap.wrap(joined, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
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
    """Whether the claims that are about the paper's result agree with it."""
    asked = [block for block in blocks if isinstance(block, Claim) and block.agrees is not None]
    met = sum(block.agrees and block.holds for block in asked)
    if not asked:
        return "no paper has this table"
    if met in (0, len(asked)):
        return "the paper's result holds" if met else "the paper's result does not hold"
    return f"the paper's result holds in part ({met} of {len(asked)})"


def publish(sections: Mapping[str, str], order: Sequence[str]) -> None:
    """Put these sections, by name, into the page; others stay, last those that only another checkout's order has."""
    with PAGE.open("a+") as file:
        # With the lock, two runs at the same time keep each other's sections.
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        before = dict(re.findall(r"<!-- table (\w+) -->\n(.*?)(?=<!-- |\Z)", file.read(), re.DOTALL))
        all_sections = before | dict(sections)
        text = whole({name: all_sections[name].strip() for name in [*order, *all_sections] if name in all_sections})
        file.truncate(0)
        file.write(text)


def whole(sections: Mapping[str, str]) -> str:
    """The page: introduction, contents, words, these sections, references."""
    times = re.findall(r"; ([\d.]+) minutes of one core", "\n".join(sections.values()))
    minutes = sum(map(float, times))
    references = "\n".join(filled(f"- **{name}** {text}", "  ") for name, text in REFERENCES.items())
    return "\n".join(
        [
            f"# The papers' tables, run again\n\n{markdown(INTRODUCTION.format(minutes=minutes))}\n",
            f"{markdown(contents(sections))}\n",
            f"{markdown(words())}\n",
            *(f"<!-- table {name} -->\n{text}\n" for name, text in sections.items()),
            f"<!-- references -->\n## References\n\n{references}\n",
        ]
    )


def words() -> Grid:
    """The words that every section uses, with their meaning."""
    rows = [" ".join(paragraph.split()).split(": ", 1) for paragraph in WORDS.strip().split("\n\n")]
    return Grid("Words of this page", ["word", "meaning"], rows)


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
