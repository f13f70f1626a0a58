"""The papers' tables: which results are kept, which are computed again, and claims that a run must confirm."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from types import SimpleNamespace

import pytest

from benchmarks.papers import TABLES, cache, module_of, page
from benchmarks.papers.page import Claim, Grid
from tests.benchmarks.code_cache import forget

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

    def make_table(table=TABLE, scale=SCALE, core="ETA = 0.01  # words\n"):
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        papers = root / "benchmarks" / "papers"
        papers.mkdir(parents=True)
        (papers / "toy.py").write_text(table)
        (papers / "scale.py").write_text(scale)
        (root / "omdml").mkdir()
        (root / "omdml" / "steps.py").write_text(core)
        monkeypatch.setattr(cache, "ROOT", root)
        forget()
        return SimpleNamespace(__name__="benchmarks.papers.toy", DATA=(), run=lambda seed: 2 / (1 - seed))

    yield make_table
    forget()


def test_a_changed_text_or_unused_code_keeps_the_results_of_a_table(checkout):
    before = cache.path(checkout(), {"seed": 0})
    assert cache.path(checkout(TABLE.replace("prose", "other prose").replace("ords", "riting")), {"seed": 0}) == before
    assert cache.path(checkout(scale=SCALE.replace("return 1", "return 2")), {"seed": 0}) == before
    assert cache.path(checkout(core="ETA = 0.01\n"), {"seed": 0}) == before


def test_a_change_of_what_a_table_computes_with_needs_new_results(checkout):
    before = cache.path(checkout(), {"seed": 0})
    assert cache.path(checkout(), {"seed": 1}) != before
    assert cache.path(checkout(TABLE.replace("return scaled(seed)", "return scaled(-seed)")), {"seed": 0}) != before
    assert cache.path(checkout(scale=SCALE.replace("FACTOR = 2", "FACTOR = 3")), {"seed": 0}) != before
    assert cache.path(checkout(core="ETA = 0.02\n"), {"seed": 0}) != before


def test_an_interrupted_table_goes_on_where_it_stopped(checkout):
    table = checkout()
    assert cache.kept_result(table, {"seed": 0}) is None
    cache.compute(table, {"seed": 0})
    with pytest.raises(ZeroDivisionError):
        cache.compute(table, {"seed": 1})
    assert cache.kept_result(table, {"seed": 0}).result == 2
    assert cache.kept_result(table, {"seed": 1}) is None


@pytest.mark.parametrize("damaged", ["", '{"result": [1, 2', '{"outcome": 1}', "[]"])
def test_a_damaged_kept_file_counts_as_none(checkout, damaged):
    table = checkout()
    cache.compute(table, {"seed": 0})
    cache.path(table, {"seed": 0}).write_text(damaged)
    assert cache.kept_result(table, {"seed": 0}) is None


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("UNITS = [{'seed': seed} for seed in SEEDS]", {"UNITS"}),
        ("LOW, (HIGH, *REST) = bounds()", {"LOW", "HIGH", "REST"}),
        ("ETA: float = 0.1", {"ETA"}),
        ("class World(NamedTuple):\n    x: int = 1", {"World"}),
        ("def run(seed):\n    found = seed", {"run"}),
    ],
)
def test_a_statement_defines_what_it_leaves_behind(statement, names):
    assert cache.defined(ast.parse(statement).body[0]) == names


def test_a_claim_that_a_run_does_not_bear_out_is_struck_through():
    assert page.markdown(Claim("A is\nabove B.", True)) == "- A is above B."
    assert page.markdown(Claim("A is above B.", False)) == "- ~~A is above B.~~ (not in this run)"


def test_lines_are_filled_after_figures_were_put_in_but_not_those_of_grids():
    message = page.markdown(f"{'word ' * 40}\n\nSecond {'0.123 ' * 40}")
    assert max(map(len, message.splitlines())) <= page.WIDTH
    assert message.count("\n\n") == 1
    assert len(page.markdown(Grid("Figures", ["word"] * 40, [["0.1"] * 40])).splitlines()) == 5


def test_numbers_have_one_format():
    assert page.listed((0.00001, 0.1, 1, 1000.0)) == "0.00001, 0.1, 1, 1,000"
    assert page.spread([2442.0, 2444.0], 1) == "2,443.0 ± 1.4"


@pytest.mark.parametrize(
    ("claims", "verdict"),
    [
        ([Claim("", True, agrees=True), Claim("", True)], "the paper's result holds"),
        ([Claim("", True, agrees=True), Claim("", True, agrees=False)], "the paper's result holds in part (1 of 2)"),
        ([Claim("", False, agrees=True), Claim("", True, agrees=False)], "the paper's result does not hold"),
        ([Claim("", True)], "no paper has this table"),
    ],
)
def test_a_verdict_counts_what_the_run_finds_as_the_paper_has_it(claims, verdict):
    assert page.verdict(claims) == verdict


@pytest.fixture
def toy_page(tmp_path, monkeypatch):
    """Gives a function that writes sections of tables, by name and title, into a page in the order two, one."""
    monkeypatch.setattr(page, "PAGE", tmp_path / "README.md")

    def written(**titles):
        for name, title in titles.items():
            table = SimpleNamespace(__name__=f"benchmarks.papers.{name}", TITLE=title, MATHS="2")
            blocks = ["Before.", Grid("Figures", ["a", "b"], [["1", "2"]]), Claim("A is above B.", True, agrees=True)]
            page.publish({name: page.section(table, 4.0, blocks)}, ["two", "one"])
        return page.PAGE.read_text()

    return written


def test_the_page_keeps_the_sections_of_tables_that_were_not_run(toy_page):
    toy_page(one="First", two="Second")
    text = toy_page(two="Second again")
    assert "about 8 minutes" in text
    assert "Second\n" not in text
    assert text.index("## Second again") < text.index("## First") < text.index("| 1 | 2 |", text.index("## First"))
    assert text.count("## References") == 1


def test_the_page_keeps_the_sections_of_tables_that_this_checkout_does_not_know(toy_page):
    toy_page(newer="Of another checkout")
    text = toy_page(one="First")
    assert text.index("## First") < text.index("## Of another checkout") < text.index("## References")


def test_the_page_begins_with_its_contents(toy_page):
    text = toy_page(one="LAW Table 3.1: Fantope, and more", two="Drift")
    assert "| [LAW Table 3.1](#law-table-31-fantope-and-more) | Fantope, and more | the paper's result holds |" in text
    assert "4.0 minutes of one core; [LAW](#references), MATHS 2." in text
    assert text.index("| [Drift](#drift) |") < text.index("## ")


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_five_seeds_and_is_on_the_page(name):
    table = importlib.import_module(module_of(name))
    assert len({unit["seed"] for unit in table.UNITS}) >= 5
    assert set(inspect.signature(table.run).parameters) == set(table.UNITS[0])
    assert cache.name_of(table) == name
    assert f"<!-- table {name} -->" in page.PAGE.read_text()


def test_the_page_is_made_of_its_sections():
    text = page.PAGE.read_text()
    assert page.whole({name: section.strip() for name, section in sections(text)}) == text


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_words_that_the_code_of_a_table_writes(name):
    table = importlib.import_module(module_of(name))
    section = dict(sections(page.PAGE.read_text()))[name]
    assert page.markdown(table.ABOUT) in section
    lines = [" ".join(claim.split()) for claim in re.findall(r"^- (.*?)(?=\n- |\n\n|\Z)", section.strip(), re.M | re.S)]
    claims = [re.sub(r"^~~|~~ \(not in this run\)$|\*\*(Agrees|Differs)\.\*\* ", "", line) for line in lines]
    allowed = [re.compile(pattern) for pattern in patterns(inspect.getsource(table))]
    assert claims
    assert [claim for claim in claims if not any(pattern.fullmatch(claim) for pattern in allowed)] == []


def sections(text):
    return re.findall(r"<!-- table (\w+) -->\n(.*?)(?=<!-- |\Z)", text, re.DOTALL)


def patterns(source):
    """Regular expressions of the texts of all claims: any figure may stand in the place of a formatted value."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Claim":
            parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in parts)
            yield re.escape(" ".join(text.split())).replace("\0", ".+?")
