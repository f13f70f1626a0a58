"""``make evidence`` finds figures in documents, compares them with benchmarks, and fails if they differ."""

from __future__ import annotations

import re

import pytest
from rich.table import Table

from benchmarks import evidence, record
from benchmarks.__main__ import BENCHMARKS
from benchmarks.evidence import Claim, NotFound, compare, figures, load, stated
from omdml import LEARNERS

CLAIMS = [
    pytest.param(name, claim, id=f"{name}: {claim.text[:60]}") for name, claims in load().items() for claim in claims
]
SPEED = Claim("page.md", "learns {} events a second, not {_}, in {} MB", 1.5, ["fast"], [["events/s"], ["memory"]])


@pytest.mark.parametrize(("name", "claim"), CLAIMS)
def test_each_claim_is_in_its_document_and_names_a_benchmark(name, claim):
    assert name in BENCHMARKS or name in evidence.COMMANDS
    wanted = claim.line.count("{}") if claim.line else len(claim.figures)
    assert len(stated(claim)) == wanted > 0


def test_what_promises_say_of_papers_stands_in_the_papers_page():
    promises = (evidence.ROOT / "docs" / "promises.md").read_text()
    _, *results = promises.partition("## What the papers say")[2].split("\n- ")
    page = (evidence.ROOT / "benchmarks" / "papers" / "README.md").read_text()
    sections = [set(re.findall(evidence.NUMBER, section)) for section in page.split("\n## ")]
    assert len(results) == 5
    for result in results:
        stated = set(re.findall(evidence.NUMBER, result))
        assert any(stated <= section for section in sections), f"no section of the papers' page has {stated}: {result}"


def test_every_slow_benchmark_has_claims():
    assert set(evidence.LONG) <= set(load())


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Writes a page into a folder that stands for the repository."""
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    return lambda text: (tmp_path / "page.md").write_text(text)


def recorded(tmp_path, speed="1,000 (of 9)", line="p99 1.06 times"):
    """What a benchmark that prints a table and a line leaves behind."""
    table = Table("shape", "events/s", "memory", title="Speed")
    table.add_row("fast", speed, "8.80 MB")
    table.add_row("", "7", "9 MB")
    table.add_row("slow", "1", "9 MB")
    console = record.RecordingConsole(quiet=True)
    console.print(table)
    console.print(line)
    console.save("toy", tmp_path)
    return record.read("toy", tmp_path)


def test_a_figure_within_its_band_agrees_and_one_outside_does_not(page, tmp_path):
    claim = Claim("page.md", "learns {} events a second, not {_}, in {} MB", 1.5, ["slow"], [["events/s"], ["memory"]])
    for text, expected in {"1": True, "1.5": True, "0.67": True, "1.6": False, "0.6": False, "0": False}.items():
        page(f"It learns {text} events\na second, not 12, in 9 MB.")
        verdicts, problems = compare([claim], recorded(tmp_path))
        assert [verdict.agrees for verdict in verdicts] == [expected, True], text
        assert problems == []


def test_an_empty_cell_repeats_the_one_above_it_so_a_row_may_be_ambiguous(page, tmp_path):
    page("It learns 7 events a second, not 12, in 9 MB.")
    verdicts, (problem,) = compare([SPEED], recorded(tmp_path))
    assert verdicts == []
    assert "should have one row with ['fast'] and a column 'events/s', but has 2" in problem


def test_a_line_that_is_printed_gives_figures_too(page, tmp_path):
    page("At most 1.06x.")
    claim = Claim("page.md", "At most {}x.", 1.1, line="p99 {} times")
    assert [verdict.agrees for verdict in compare([claim], recorded(tmp_path))[0]] == [True]
    assert [verdict.agrees for verdict in compare([claim], recorded(tmp_path, line="p99 2 times"))[0]] == [False]


def test_every_figure_in_a_table_of_the_readme_is_measured_again():
    mine = [claim for claims in load().values() for claim in claims if claim.document == "README.md"]
    claimed = {value for claim in mine for value in stated(claim)}
    rows = [line for line in (evidence.ROOT / "README.md").read_text().splitlines() if line.startswith("|")]
    # The first cell says what a row is about. Digits in names, such as p50, are no figures.
    cells = " ".join(row.split("|", 2)[2] for row in rows)
    shown = {evidence.number(text) for text in re.findall(rf"(?<![\w.])(?:{evidence.NUMBER})(?!\w)", cells)}
    assert len(shown) > 15
    assert shown <= claimed


def test_a_claim_about_each_learner_matches_only_the_figures_of_its_row(page):
    page("| `dca`, the default | other words | 0.5 -> 0.9 |\n| `oasis` | words, 2.4 | 0.1 -> 0.2 |\n")
    claims = evidence.for_each_learner(Claim("page.md", "| `NAME`{...}| {} -> {} |", 1.03, ["learner=NAME"]))
    assert [claim.row for claim in claims] == [[f"learner={name}"] for name in LEARNERS]
    figures_of = {claim.row[0]: stated(claim) for claim in claims if claim.row[0] in ("learner=dca", "learner=oasis")}
    assert figures_of == {"learner=dca": [0.5, 0.9], "learner=oasis": [0.1, 0.2]}


def test_what_a_document_lacks_or_has_twice_is_not_found():
    assert figures("{} of {_} and -{}", "12,500 of 3\nand -.5", "page") == [12_500.0, 0.5]
    for text in ("nothing", "1 of 2 and 3 of 4"):
        with pytest.raises(NotFound, match="page should have this once"):
            figures("{} of {_}", text, "page")


@pytest.mark.parametrize(("text", "code", "sentence"), [("1.06", 0, "0 disagree"), ("3", 1, "1 disagree")])
def test_the_command_fails_if_a_figure_disagrees(page, tmp_path, monkeypatch, capsys, text, code, sentence):
    page(f"At most {text}x.")
    recorded_figures = recorded(tmp_path)
    monkeypatch.setattr(evidence, "load", lambda: {"toy": [Claim("page.md", "At most {}x.", 1.1, line="p99 {} times")]})
    monkeypatch.setattr(evidence, "read", lambda name: recorded_figures)
    assert evidence.main(["--recorded"]) == code
    assert sentence in capsys.readouterr().out


@pytest.mark.parametrize(
    ("printed", "code", "runs"),
    [(["p99 1.06 times"], 0, 1), (["p99 9 times", "p99 1.06 times"], 0, 2), (["p99 9 times", "p99 8 times"], 1, 2)],
)
def test_a_figure_that_disagrees_is_measured_once_more(page, tmp_path, monkeypatch, capsys, printed, code, runs):
    page("At most 1.1x.")
    lines = iter(printed)
    monkeypatch.setattr(evidence, "load", lambda: {"toy": [Claim("page.md", "At most {}x.", 1.1, line="p99 {} times")]})
    monkeypatch.setattr(evidence, "run", lambda name: True)
    monkeypatch.setattr(evidence, "read", lambda name: recorded(tmp_path, line=next(lines)))
    assert evidence.main(["toy"]) == code
    assert next(lines, None) is None
    assert ("1 of 1 figures of toy disagree, so it is measured once more" in capsys.readouterr().out) == (runs == 2)


def test_the_command_fails_if_a_benchmark_did_not_run(page, monkeypatch, capsys):
    page("At most 1x.")
    monkeypatch.setattr(evidence, "load", lambda: {"toy": [Claim("page.md", "At most {}x.", 1.1, line="p99 {} times")]})
    monkeypatch.setattr(evidence, "run", lambda name: False)
    assert evidence.main(["toy"]) == 1
    assert "toy failed: its figures are not checked" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "measured"), [([], ["short"]), (["--all"], ["short", "long"]), (["long"], ["long"])]
)
def test_what_takes_long_is_measured_with_all_or_by_its_name(monkeypatch, arguments, measured):
    ran = []
    monkeypatch.setattr(evidence, "load", lambda: {"short": [], "long": []})
    monkeypatch.setattr(evidence, "LONG", ("long",))
    monkeypatch.setattr(evidence, "run", ran.append)
    evidence.main(arguments)
    assert ran == measured
