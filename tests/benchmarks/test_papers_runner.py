"""``python -m benchmarks.papers``: what it prints and answers if something stands in a table's way."""

from __future__ import annotations

import importlib
import sys

import pytest

import benchmarks.papers
from benchmarks.papers import __main__ as runner
from benchmarks.papers import cache, page
from tests.benchmarks.code_cache import forget

TOY = """
from benchmarks.papers.page import Claim, Plot
TITLE, MATHS, TIMED = "A toy", "2", True
DATA, NEEDS = (), ()
UNITS = [{"seed": 0}, {"seed": 1}]
def run(seed):
    return 10 + seed
def section(results):
    total = sum(results)
    line = Plot("toy", "a line", lambda figure: figure.subplots().plot(results))
    return [line, Claim(f"It adds up to {total}.", total == 21)]
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Gives a function that makes a table ``toy`` of this source, the only one, with its own page and cache."""
    papers = tmp_path / "benchmarks" / "papers"
    papers.mkdir(parents=True)
    monkeypatch.setenv("OMDML_CACHE", str(tmp_path / "kept"))
    monkeypatch.setenv("OMDML_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(benchmarks.papers, "__path__", [*benchmarks.papers.__path__, str(papers)])
    monkeypatch.setattr(cache, "ROOT", tmp_path)
    monkeypatch.setattr(page, "PAGE", tmp_path / "README.md")
    monkeypatch.setattr(page, "PLOTS", tmp_path / "plots")
    monkeypatch.setattr(runner, "TABLES", ("toy",))

    def make_table(source=TOY):
        (papers / "toy.py").write_text(source)
        sys.modules.pop("benchmarks.papers.toy", None)
        importlib.invalidate_caches()
        forget()
        return tmp_path

    yield make_table
    sys.modules.pop("benchmarks.papers.toy", None)
    forget()


def test_a_table_says_when_it_begins_and_ends(toy, capsys):
    root = toy()
    assert runner.main([]) == 0
    output = capsys.readouterr().out
    assert "toy begins: 2 units to compute, 0 kept" in output
    assert "toy ends: 2 computed in " in output
    assert "- It adds up to 21." in output
    assert "## A toy" in (root / "README.md").read_text()
    assert (root / "plots" / "toy.png").is_file()
    assert runner.main(["toy"]) == 0
    assert "toy begins: 0 units to compute, 2 kept" in capsys.readouterr().out


def test_a_damaged_kept_file_is_computed_again(toy, capsys):
    root = toy()
    runner.main([])
    next(root.glob("kept/papers/toy/*.json")).write_text('{"result":')
    assert runner.main([]) == 0
    assert "toy ends: 1 computed in " in capsys.readouterr().out


def test_a_claim_that_does_not_hold_is_exit_code_1(toy):
    toy(TOY.replace("== 21", "> 21"))
    assert runner.main([]) == 1


def test_absent_data_are_named_with_the_folder_they_were_looked_for_in(toy, capsys):
    root = toy(TOY.replace("DATA, NEEDS = (), ()", 'DATA, NEEDS = ("yaleb",), ()'))
    assert runner.main([]) == 3
    output = capsys.readouterr().out
    assert f"toy is left out: no yaleb.npz in {root / 'data'}; OMDML_DATA names another folder" in output


def test_an_absent_package_is_named_with_the_table_that_needs_it(toy, capsys):
    toy(TOY.replace("DATA, NEEDS = (), ()", 'DATA, NEEDS = (), ("no_such_package",)'))
    assert runner.main([]) == 3
    output = capsys.readouterr().out
    assert "toy is left out: it needs no_such_package; pip install 'omdml[papers]' brings it" in output


def test_without_matplotlib_a_table_is_printed_but_not_put_into_the_page(toy, capsys, monkeypatch):
    root = toy()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert runner.main([]) == 3
    output = capsys.readouterr().out
    assert "- It adds up to 21." in output
    assert "toy is left out: it needs matplotlib.figure; pip install 'omdml[papers]' brings it" in output
    assert not (root / "README.md").exists()


@pytest.mark.parametrize(("blocked", "folder"), [("kept", False), ("README.md", True)])
def test_a_cache_or_a_page_that_cannot_be_written_is_a_sentence(toy, capsys, blocked, folder):
    root = toy()
    (root / blocked).mkdir() if folder else (root / blocked).write_text("in the way")
    assert runner.main([]) == 3
    output = capsys.readouterr().out
    assert f"toy is left out: {root / blocked}" in output
    assert "OMDML_CACHE" in output


def test_a_table_that_there_is_not_is_exit_code_2(capsys):
    with pytest.raises(SystemExit, match="2"):
        runner.main(["nothing"])
    assert "no table 'nothing': there are law_fantope, " in capsys.readouterr().err


def test_help_lists_the_tables_with_their_titles(toy, capsys):
    toy()
    with pytest.raises(SystemExit, match="0"):
        runner.main(["--help"])
    output = capsys.readouterr().out
    assert "  toy             A toy\n" in output
    assert "3 if a table is left out" in output
