"""The papers' tables: what is kept, what is computed anew, and claims that a run must bear out."""

from __future__ import annotations

import importlib
import inspect
from types import SimpleNamespace

import pytest

from benchmarks.papers import TABLES, cache, page
from benchmarks.papers.__main__ import main
from benchmarks.papers.page import Claim, Grid

TABLE = '''
"""A table."""
from benchmarks.papers.scale import scaled
def run(seed):
    """Words."""
    return scaled(seed)  # more words
def section(results):
    return ["prose"]
'''
SCALE = "FACTOR = 2\ndef scaled(x):\n    return FACTOR * x\ndef other():\n    return 1\n"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Gives a table of a checkout that holds these sources."""
    monkeypatch.setenv("OMDML_CACHE", str(tmp_path / "kept"))

    def made(table=TABLE, scale=SCALE, core="ETA = 0.01  # words\n"):
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        papers = root / "benchmarks" / "papers"
        papers.mkdir(parents=True)
        (papers / "toy.py").write_text(table)
        (papers / "scale.py").write_text(scale)
        (root / "omdml").mkdir()
        (root / "omdml" / "steps.py").write_text(core)
        monkeypatch.setattr(cache, "ROOT", root)
        cache.core.cache_clear()
        return SimpleNamespace(__name__="benchmarks.papers.toy", DATA=(), run=lambda seed: 2 / (1 - seed))

    yield made
    cache.core.cache_clear()


def test_what_a_table_tells_may_change_without_computing_it_again(checkout):
    told = cache.path(checkout(), {"seed": 0})
    assert cache.path(checkout(TABLE.replace("prose", "other prose").replace("ords", "riting")), {"seed": 0}) == told
    assert cache.path(checkout(scale=SCALE.replace("return 1", "return 2")), {"seed": 0}) == told
    assert cache.path(checkout(core="ETA = 0.01\n"), {"seed": 0}) == told


def test_what_a_table_computes_with_may_not(checkout):
    told = cache.path(checkout(), {"seed": 0})
    assert cache.path(checkout(), {"seed": 1}) != told
    assert cache.path(checkout(TABLE.replace("return scaled(seed)", "return scaled(-seed)")), {"seed": 0}) != told
    assert cache.path(checkout(scale=SCALE.replace("FACTOR = 2", "FACTOR = 3")), {"seed": 0}) != told
    assert cache.path(checkout(core="ETA = 0.02\n"), {"seed": 0}) != told


def test_an_interrupted_table_goes_on_where_it_stopped(checkout):
    table = checkout()
    assert cache.kept(table, {"seed": 0}) is None
    cache.compute(table, {"seed": 0})
    with pytest.raises(ZeroDivisionError):
        cache.compute(table, {"seed": 1})
    assert cache.kept(table, {"seed": 0}).result == 2
    assert cache.kept(table, {"seed": 1}) is None


def test_a_claim_that_a_run_does_not_bear_out_is_struck_through():
    assert page.markdown(Claim("A is\nabove B.", True)) == "- A is above B."
    assert page.markdown(Claim("A is above B.", False)) == "- ~~A is above B.~~ (not in this run)"


def test_the_page_keeps_the_sections_of_tables_that_were_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PAGE", tmp_path / "README.md")
    first = page.section("First", "one", 3.0, ["Before.", Grid("Figures", ["a", "b"], [["1", "2"]])])
    page.publish({"one": first, "two": page.section("Second", "two", 4.0, [])}, ["two", "one"])
    page.publish({"two": page.section("Second again", "two", 5.0, [])}, ["two", "one"])
    text = page.PAGE.read_text()
    assert "about 8 minutes" in text
    assert "Second\n" not in text
    assert text.index("## Second again") < text.index("## First") < text.index("| 1 | 2 |")


def test_a_table_that_there_is_not_is_refused(capsys):
    assert main(["nothing"]) == 2
    assert "no table 'nothing'" in capsys.readouterr().out


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_five_seeds_and_is_on_the_page(name):
    table = importlib.import_module(f"benchmarks.papers.{name}")
    assert len({unit["seed"] for unit in table.UNITS}) >= 5
    assert set(inspect.signature(table.run).parameters) == set(table.UNITS[0])
    assert f"<!-- table {name} -->" in page.PAGE.read_text()
