"""Names that others choose become neither paths nor keys nor lines of a log, and nothing of theirs is ever run."""

from __future__ import annotations

import ast
import re
import unicodedata
from urllib.parse import unquote

import pytest
import structlog
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from omdml.errors import FeedbackError
from omdml.streams.letters import Letter
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.redis.keys import StoreKeys
from omdml.workers.configuration.process import configure_log
from omdml.workers.learning.metrics import WorkerMetrics
from tests.support.processes import ROOT
from tests.support.shops import Shop

FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "code"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_OPTIONS = {"allow_pickle", "shell"}
MENTIONED = re.compile(rf"\b({'|'.join(FORBIDDEN_MODULES | FORBIDDEN_CALLS | FORBIDDEN_OPTIONS)})\b")
FORMS = [unicodedata.normalize(form, "é") for form in ("NFC", "NFD")]
HOSTILE = [
    "../x",
    "a/b",
    "..",
    ".",
    "a\0b",
    "a\nb",
    "a\r\nlevel=error",
    "{shop}",
    "}:epoch",
    "*",
    "user-*",
    "CON",
    "nul.txt",
]
HOSTILE += ["x" * 200, *FORMS, " ", "%2e%2e", "~", "a:b", "İ", "\u202egnp.exe", "\x1b[2J", 'a"b', "a=b c=d"]
names = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60))


def sources():
    """(path, syntax tree) of every module that mentions a forbidden name; only the tree tells whether it is used."""
    for package in ("omdml", "streams", "workers", "deploy"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if MENTIONED.search(text):
                yield path.relative_to(ROOT), ast.parse(text)


def test_nothing_is_unpickled_or_evaluated():
    forbidden_uses, paths = [], set()
    for path, tree in sources():
        paths.add(str(path))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imported = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
                forbidden_uses += [f"{path}: {name}" for name in imported if name.split(".")[0] in FORBIDDEN_MODULES]
            elif isinstance(node, ast.Call):
                called = node.func.id if isinstance(node.func, ast.Name) else ""
                pickled = [k for k in node.keywords if k.arg in FORBIDDEN_OPTIONS and not is_false(k.value)]
                forbidden_uses += [f"{path}:{node.lineno}"] * (called in FORBIDDEN_CALLS or bool(pickled))
    assert forbidden_uses == []
    # This module has a variable ``code``, which is also a forbidden name: so modules were found and looked at.
    assert "workers/cli.py" in paths


def is_false(value):
    return isinstance(value, ast.Constant) and value.value is False


@pytest.mark.parametrize("name", HOSTILE)
def test_a_model_of_any_name_stays_within_the_folder_of_its_store(tmp_path, name):
    store = DirectoryStore(tmp_path / "state")
    Shop(tmp_path, name, store).publish()
    assert store.models() == [name]
    assert store.load(name)[1].model == name
    outside = {path.name for path in tmp_path.iterdir()}
    assert outside == {"state", "items"}
    store.delete(name)
    assert store.models() == []


@given(names, names)
@example("a", "a/b")
@example("É", "É")
def test_two_names_have_different_keys_and_none_leaves_its_braces(name, other_name):
    keys = StoreKeys("omdml")
    before_brace, _, after_brace = keys.model(name).epoch.partition("{")
    quoted, _, after_braces = after_brace.partition("}")
    assert (before_brace, unquote(quoted), after_braces) == ("omdml:", name, ":epoch")
    assert not set(quoted) & set("{}*?[]: \n\0/")
    assert (keys.model(name).current == keys.model(other_name).current) == (name == other_name)


@given(names)
def test_a_letter_about_any_name_is_one_line(name):
    record = Record(Partition("t", 0), 3, name.encode(), key=name.encode(), headers=((name, name.encode()),))
    letter = Letter.of(record, FeedbackError(f"no model {name!r}"), name)
    line = letter.encode()
    assert b"\n" not in line
    assert Letter.decode(line) == letter


@given(names)
@settings(deadline=None)
def test_a_name_cannot_forge_a_line_of_the_log_or_of_the_metrics(name):
    before, factory = structlog.get_config(), structlog.testing.CapturingLoggerFactory()
    configure_log()
    structlog.configure(logger_factory=factory)
    try:
        structlog.get_logger().info("model_live", model=name, reason=f"model {name}", error=repr(name))
    finally:
        structlog.configure(**before)
    (line,) = (call.args[0] for call in factory.logger.calls)
    assert line.isprintable()
    metrics = WorkerMetrics(CollectorRegistry())
    metrics.intake.count_refused(name, "triplet", "unknown_model")
    lines = generate_latest(metrics.registry).decode().split("\n")
    counted = [line for line in lines if line.startswith("omdml_worker_events_total{")]
    assert len([line for line in counted if not line.endswith(" 0.0")]) == 1
    assert all(line.rsplit(" ", 1)[1] in ("0.0", "1.0") for line in counted)
