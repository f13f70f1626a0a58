"""What the documents show exists, and does what they say."""

from __future__ import annotations

import json
import re
import tomllib

import click
import numpy as np
import pytest
from click.testing import CliRunner

from deploy.local.ports import free_port
from docs.reference.pages import PAGES, hyperparameters
from omdml.feedback import KINDS, decode
from omdml.learners import LEARNERS, OASIS
from omdml.workers.cli import main
from omdml.workers.configuration.loading import load
from tests.support.pages.documents import FENCE, blocks, mentioned, read, steps, typed
from tests.support.pages.sessions import run_session
from tests.support.processes import ROOT

FOLDERS = ("benchmarks", "deploy", "docs", "omdml", "streams", "tests", "workers")
# Every page, but for the site's reference, which is made from the code.
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))]
    if "reference" not in path.parts
)
COMMANDS = [
    pytest.param(words, complete, id=f"{name}: {' '.join(words)}")
    for name in DOCUMENTS
    for find, complete in ((typed, True), (mentioned, False))
    for words in find(read(name))
]
# A placeholder for a value that readers choose, such as MODEL, or for several words.
PLACEHOLDER = re.compile(r"[A-Z][A-Z_-]*|\.\.\.")
MAKE = re.compile(r"^(?:\$ )?make ([a-z-]+)", re.MULTILINE)
OWN_ITEMS = read("docs/quickstart.md").partition("## Use your own items")[2]
DAY_BY_DAY = read("docs/day-by-day.md")
# A node that is ready before the worker has published answers with serial 0.
VARY = ("took_s", "at", "serial")


@pytest.mark.parametrize(("words", "complete"), COMMANDS)
def test_a_command_that_a_document_shows_exists_with_its_options(words, complete):
    """A sentence may mention a command without its required arguments, and its last option without a value."""
    command, context = main, click.Context(main, info_name="omdml")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        command = command.get_command(context, words[0])
        assert command, f"no command {words[0]!r}"
        context, words = click.Context(command, context, info_name=words[0]), words[1:]
    assert not (complete and isinstance(command, click.Group)), "which of its commands?"
    with_value = [option for option in command.params if isinstance(option, click.Option) and not option.is_flag]
    if not complete and words and any(words[-1] in option.opts for option in with_value):
        words = [*words, "VALUE"]
    given, left, _ = command.make_parser(context).parse_args([word for word in words if word != "..."])
    assert left == [], "more arguments than the command takes"
    for parameter in command.params:
        values = given.get(parameter.name)
        if not isinstance(values, str | bool | tuple | list) or not values:
            assert not (complete and parameter.required), f"{parameter.name} is missing"
        elif not isinstance(parameter.type, click.Path | click.File) and not stands_for_another(values):
            parameter.type_cast_value(context, values)


def stands_for_another(values: object) -> bool:
    """Whether a value, or one of several, is a placeholder."""
    listed = values if isinstance(values, list | tuple) else [values]
    return any(isinstance(value, str) and PLACEHOLDER.fullmatch(value) for value in listed)


def test_a_target_of_make_that_a_document_shows_exists():
    rules = re.findall(r"^([a-z][a-z -]*):", read("Makefile"), re.MULTILINE)
    targets = {target for rule in rules for target in rule.split()}
    shown = [(name, target) for name in DOCUMENTS for target in shown_targets(read(name))]
    assert ("README.md", "demo") in shown
    assert [(name, target) for name, target in shown if target not in targets] == []


def shown_targets(text: str) -> list[str]:
    """The targets that a document has readers make, in sentences and in blocks."""
    in_blocks = (MAKE.findall(block.text) for block in blocks(text, "", "console"))
    return re.findall(r"`make\s([a-z-]+)", text) + [target for targets in in_blocks for target in targets]


def test_the_files_that_newcomers_are_sent_to_exist():
    text = read("CONTRIBUTING.md").partition("## Where would I change ...?")[2].partition("## Rules")[0]
    in_blocks = [word for block in blocks(text, "") for word in block.text.split()]
    in_sentences = [word for code in re.findall(r"`([^`]+)`", FENCE.sub("", text)) for word in code.split()]
    # `make .venv/.dev` makes a file that git does not have.
    made = [".venv/.dev"]
    paths = [path for path in [*in_sentences, *in_blocks] if "/" in path and "NAME" not in path and path not in made]
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_commands_are_found_in_blocks_and_sentences():
    assert ["catalogue", "build", "items/", "items.npz"] in typed(read("docs/quickstart.md"))
    assert ["worker"] in typed(read("docs/quickstart.md"))
    assert ["node"] in typed(read("docs/quickstart.md"))
    assert ["compare-live"] in typed(read("deploy/SEARCH.md"))
    assert ["topics", "rehome", "--partitions", "8"] in mentioned(read("deploy/OPERATIONS.md"))
    assert ["catalogue", "delete", "items/", "old-hat"] in mentioned(read("deploy/ITEMS.md"))
    assert ["doctor", "--config", "/etc/omdml/omdml.toml"] in mentioned(read("deploy/RUNBOOK.md"))


@pytest.mark.parametrize(
    "line", [line for block in blocks(read("docs/feedback.md"), "json") for line in block.text.split("\n")]
)
def test_an_event_that_the_documents_show_can_be_read(line):
    if line:
        assert decode(line.encode()).model == json.loads(line)["model"]


def test_the_configuration_that_the_documents_show_is_valid():
    (block,) = blocks(read("docs/kafka.md"), "toml")
    assert load(None, {}, tomllib.loads(block.text)).log.servers == "localhost:9092"


def test_the_python_that_the_documents_show_learns():
    code = next(block.text for block in blocks(read("docs/learners.md"), "python") if "from omdml import" in block.text)
    draw = np.random.default_rng(0)
    features = {"color": draw.random((50, 8)), "shape": draw.random((50, 16))}
    names = {"features": features, "triplets": draw.permuted(np.tile(np.arange(50), (20, 1)), axis=1)[:, :3]}
    exec(code, names)
    assert names["model"].version == 20
    np.testing.assert_allclose(np.linalg.norm(names["model"].metric.embed(features), axis=1), 1, atol=1e-6)


@pytest.fixture
def session(tmp_path):
    """Runs the session of the quickstart; returns its steps, with what each has printed."""
    port, shown = free_port(), steps(blocks(OWN_ITEMS, "console")[0].text)
    version_1 = f"until curl -s 'localhost:{port}/search?id=17&k=2' | grep -q '\"version\":1'; do sleep 0.1; done;"
    commands = [
        "true" if "bin/activate" in step.command else step.command.replace("sleep 1; curl '", f"{version_1} curl '")
        for step in shown
    ]
    return list(zip(shown, run_session(commands, tmp_path, port), strict=True))


def same(shown: str, printed: str) -> bool:
    """Whether a line is the one that the document shows, whose numbers are shortened."""
    if not shown.startswith("{"):
        # The last digits of a map, and so its catalogue's generation, depend on the processor.
        shown, printed = (re.sub("(mapped coordinates, generation) .*", r"\1", line) for line in (shown, printed))
        return shown == printed
    first, second = json.loads(shown), json.loads(printed)
    items = [[(item["id"], pytest.approx(item["distance"], abs=1e-3)) for item in first.pop("items", [])]]
    items.append([(item["id"], item["distance"]) for item in second.pop("items", [])])
    for name in VARY:
        assert (name in first) == (name in second)
        first.pop(name, None), second.pop(name, None)
    return first == second and items[1] == items[0]


def test_the_quickstarts_session_prints_what_it_shows(session, tmp_path, monkeypatch):
    for step, printed in session:
        wanted = [line for line in step.output if line]
        assert len(printed) == len(wanted), (step.command, printed)
        for shown, line in zip(wanted, printed, strict=True):
            assert same(shown, line), f"{step.command}\nshown:   {shown}\nprinted: {line}"
    # The commands of every day work on what the session left. Those about a topic need Kafka, and `search` a node.
    monkeypatch.chdir(tmp_path)
    for line in blocks(DAY_BY_DAY, "")[0].text.splitlines():
        words = line.split("#")[0].replace("shop 166", "shop 1").split()[1:]
        if words[0] in ("topics", "search"):
            continue
        ran = CliRunner().invoke(main, words, env={"OMDML_GUARD__ON": "false", "COLUMNS": "200"})
        assert ran.exit_code == 0, (line, ran.output, ran.exception)
        assert ran.output


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_what_the_code_says(name):
    assert read(name) == PAGES[name](), "`make pages` writes it again"


def test_the_changelog_names_every_learner_and_every_kind_of_feedback():
    names = {name: [name, f"{name}s"] for name in (*LEARNERS, *KINDS.values())}
    words = set(re.findall(r"\w+", read("CHANGELOG.md").lower().replace("-", "")))
    assert [name for name, forms in names.items() if words.isdisjoint(forms)] == [], "CHANGELOG.md lacks these"


# Each of these pages names all learners that have no embedding of items.
NAMING_LEARNERS = (
    "docs/concepts.md",
    "docs/reference/python.md",
    *(f"deploy/{n}.md" for n in ("EXPORT", "SEARCH", "VECTORS")),
)


@pytest.mark.parametrize("page", NAMING_LEARNERS)
def test_pages_on_learners_without_an_embedding_name_all_of_them(page):
    wanted = {name for name, kind in LEARNERS.items() if kind.no_embedding}
    paragraphs = [set(re.findall(r"`(\w+)`", part)) for part in read(page).split("\n\n")]
    assert any(wanted <= named for named in paragraphs), f"no paragraph of {page} names all of {sorted(wanted)}"


def test_a_variant_of_a_learner_has_the_parameters_of_its_base(monkeypatch):
    class Variant(OASIS):
        """Its parameters are those of OASIS."""

    monkeypatch.setitem(LEARNERS, "variant", Variant)
    assert hyperparameters("variant")["C"] == hyperparameters("oasis")["C"]
