"""``python -m benchmarks.evidence [--recorded] [--all] [NAME ...]``: measure the figures of the documents, and compare.

The files in ``claims/``, one for each document, say which benchmark each figure comes from, and how far the two may be
apart. If a figure disagrees, its benchmark runs once more, because a single hiccup of a machine can change a figure
such as a p99. The figure is wrong only if it disagrees both times.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta
from rich.console import Console
from rich.table import Table

from benchmarks.record import Printout, read
from omdml import LEARNER_CLASSES

ROOT = Path(__file__).resolve().parents[1]
CLAIMS = Path(__file__).with_name("claims")
NUMBER = r"-?\d[\d,]*(?:\.\d+)?|-?\.\d+"
# Modules of the tests that measure figures as well.
COMMANDS = {"attacks": "tests.fault.attacks", "chaos": "tests.fault.chaos"}
# Benchmarks that take many minutes and whose figures seldom change. They run only with --all, or if they are named.
LONG = ("moved", "ten_million", "expand", "two_stage", "bad_events", "many_models", "new_models")


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Figures in a document, and the place in a benchmark's output at which the same figures are printed.

    Parameters
    ----------
    document
        Path in the repository.
    text
        The sentence or table row, with ``{}`` for each figure that is checked, ``{_}`` for any other number, and
        ``{...}`` for any text within one line. It occurs once in the document. If it has ``NAME``, the entry stands for
        one claim for each learner, whose name takes the place of ``NAME`` in ``text`` and ``row``.
    times
        The factor by which text and measurement may differ, either way.
    row
        Cells (``cell``, or ``column=cell``), or parts of the table's title, that together belong to one row of what
        the benchmark prints.
    figures
        For each figure the name of its column, after more cells that its row has, if ``row`` fits several. The first
        number in a cell counts.
    line
        Instead of these, a line that the benchmark prints, with ``{}`` for each figure.
    """

    document: str
    text: str
    times: Annotated[float, Meta(ge=1)]
    row: list[str] = []
    figures: list[list[str]] = []
    line: str = ""


class NotFound(Exception):
    """Raised if a figure is not at the place that the claim names."""


class Verdict(NamedTuple):
    """A figure in the text beside the same figure as measured."""

    claim: Claim
    stated: float
    measured: float

    @property
    def agrees(self) -> bool:
        """Whether the two differ by no more than the claim allows."""
        if self.stated * self.measured <= 0:
            return self.stated == self.measured
        ratio = self.measured / self.stated
        # Figures in a text are rounded, so a band's very end still agrees.
        return 1 / self.claim.times <= ratio * (1 + 1e-9) and ratio <= self.claim.times * (1 + 1e-9)


class Checked(NamedTuple):
    """The verdicts on the figures that come from one benchmark, and how long it ran."""

    verdicts: list[Verdict]
    # A sentence for each claim that could not be checked.
    problems: list[str]
    took_s: float

    @property
    def wrong(self) -> int:
        """How many figures disagree."""
        return sum(not verdict.agrees for verdict in self.verdicts)


def load(folder: Path = CLAIMS) -> dict[str, list[Claim]]:
    """All claims, by benchmark. Each file names its document, then has an array of tables for each benchmark."""
    claims: dict[str, list[Claim]] = {}
    for path in sorted(folder.glob("*.toml")):
        content = tomllib.loads(path.read_text())
        document = content.pop("document")
        for name, entries in content.items():
            templates = [msgspec.convert({"document": document, **entry}, Claim) for entry in entries]
            claims.setdefault(name, []).extend(claim for each in templates for claim in for_each_learner(each))
    return claims


def for_each_learner(claim: Claim) -> list[Claim]:
    """The claims that an entry stands for: one for each learner if it says ``NAME``, otherwise the entry itself."""
    if "NAME" not in claim.text:
        return [claim]
    return [
        msgspec.structs.replace(
            claim, text=claim.text.replace("NAME", learner), row=[part.replace("NAME", learner) for part in claim.row]
        )
        for learner in LEARNER_CLASSES
    ]


def figures(template: str, text: str, where: str) -> list[float]:
    """The numbers that stand in ``text`` at the ``{}`` of a template; any white space matches any other.

    Raises NotFound if the template does not occur exactly once.
    """
    pieces = re.split(r"(\{(?:_|\.\.\.)?\}|\s+)", template)
    kinds = {"{}": f"({NUMBER})", "{_}": f"(?:{NUMBER})", "{...}": ".*"}
    pattern = "".join(r"\s+" if piece.isspace() else kinds.get(piece) or re.escape(piece) for piece in pieces if piece)
    matches = list(re.finditer(pattern, text))
    if len(matches) != 1:
        raise NotFound(f"{where} should have this once, but has it {len(matches)} times: {template}")
    return [number(group) for group in matches[0].groups()]


def number(text: str) -> float:
    """The value of a number as it is written in a text."""
    return float(text.replace(",", ""))


def stated(claim: Claim) -> list[float]:
    return figures(claim.text, (ROOT / claim.document).read_text(), claim.document)


def measured(claim: Claim, printout: Printout) -> list[float]:
    """The same figures as a benchmark printed them; raises NotFound if it did not."""
    if claim.line:
        return figures(claim.line, "\n".join(printout.lines), "the output")
    return [cell(printout, [*claim.row, *row], column) for *row, column in claim.figures]


def cell(printout: Printout, row: list[str], column: str) -> float:
    """The first number in a cell; raises NotFound unless there is one such cell, with a number."""
    cells = []
    for table in printout.tables:
        for texts in table.rows:
            named = dict(zip(table.columns, texts, strict=True))
            labels = {*texts, *(f"{name}={text}" for name, text in named.items())}
            if column in named and all(part in labels or part in table.title for part in row):
                cells.append(named[column])
    if len(cells) != 1:
        raise NotFound(f"the output should have one row with {row} and a column {column!r}, but has {len(cells)}")
    match = re.search(NUMBER, cells[0])
    if not match:
        raise NotFound(f"the output has {cells[0]!r} for {row}, {column!r}, which is no number")
    return number(match[0])


def compare(claims: Sequence[Claim], printout: Printout) -> tuple[list[Verdict], list[str]]:
    """Each figure beside its measurement, and a sentence for each claim that cannot be checked."""
    verdicts, problems = [], []
    for claim in claims:
        try:
            verdicts += [Verdict(claim, *pair) for pair in zip(stated(claim), measured(claim, printout), strict=True)]
        except NotFound as error:
            problems.append(f"{claim.document}: {error}")
    return verdicts, problems


def run(name: str) -> bool:
    """Run a benchmark in a process of its own; returns whether it succeeded."""
    command = [COMMANDS[name]] if name in COMMANDS else ["benchmarks", name]
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode == 0


def check(name: str, claims: Sequence[Claim], recorded: bool, console: Console) -> Checked:
    """Compare the figures that come from a benchmark with what it prints, or printed when it last ran."""
    # The printout of an earlier run must not stand for one that failed.
    printout = read(name) if recorded or run(name) else None
    if printout is None:
        sentence = f"{name} {'has not run here' if recorded else 'failed'}: its figures are not checked"
        return Checked([], [sentence], 0.0)
    if printout.load > 1.5 * (os.cpu_count() or 1):
        console.print(f"{name} ran beside other work (load {printout.load:.0f}): expect its speeds to be too low")
    verdicts, problems = compare(claims, printout)
    return Checked(verdicts, [f"{name}: {sentence}" for sentence in problems], printout.took_s)


def check_twice(name: str, claims: Sequence[Claim], recorded: bool, console: Console) -> Checked:
    """The same as ``check``, but if figures disagree, the benchmark runs once more, and they may agree then."""
    first = check(name, claims, recorded, console)
    if recorded or first.problems or not first.wrong:
        return first
    console.print(f"{first.wrong} of {len(first.verdicts)} figures of {name} disagree, so it is measured once more")
    again = check(name, claims, False, console)
    if again.problems:
        return again
    pairs = zip(first.verdicts, again.verdicts, strict=True)
    verdicts = [earlier if earlier.agrees else later for earlier, later in pairs]
    return Checked(verdicts, [], first.took_s + again.took_s)


def add_rows(table: Table, name: str, verdicts: Sequence[Verdict]) -> None:
    """Show the verdicts on a benchmark's figures."""
    for verdict in verdicts:
        claim, text, value = verdict
        words = " ".join(claim.text.split())
        table.add_row(
            claim.document, words if len(words) <= 60 else words[:57] + "...", name, f"{text:,g}", f"{value:,g}",
            f"{value / text:.2f}" if text else "-", f"{claim.times:g}", "agrees" if verdict.agrees else "DISAGREES",
        )  # fmt: skip


def main(arguments: list[str]) -> int:
    """Measure and compare; returns the exit code: 1 if a figure disagrees or could not be checked."""
    claims = load()
    description = "Compare the figures of the documents with new measurements."
    parser = argparse.ArgumentParser(prog="benchmarks.evidence", description=description)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"benchmarks to run, among {', '.join(claims)}")
    parser.add_argument("--all", action="store_true", help=f"without names: also {', '.join(LONG)}, which take long")
    parser.add_argument("--recorded", action="store_true", help="measure nothing; compare what the last runs printed")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in claims:
            parser.error(f"no figure comes from {name!r}: there are {', '.join(claims)}")
    console = Console(width=None if sys.stdout.isatty() else 180)
    table = Table("document", "figure", "benchmark", "text", "measured", "ratio", "band", "verdict")
    results = []
    for name in options.names or [name for name in claims if options.all or name not in LONG]:
        results.append(check_twice(name, claims[name], options.recorded, console))
        add_rows(table, name, results[-1].verdicts)
    wrong, problems = sum(each.wrong for each in results), [text for each in results for text in each.problems]
    console.print(table)
    for sentence in problems:
        console.print(sentence, markup=False, soft_wrap=True)
    count, minutes = sum(len(each.verdicts) for each in results), sum(each.took_s for each in results) / 60
    console.print(f"{count} figures, measured in {minutes:.0f} minutes; {wrong} disagree; {len(problems)} problems")
    return int(bool(wrong or problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
