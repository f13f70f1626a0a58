"""Imports run one way: workers -> streams -> omdml, and inside workers from commands down to the configuration. The
client imports only errors and feedback of the core."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("omdml", "omdml/client", "streams", "workers")
INSTALLED_UNDER = re.compile(r"^omdml\.(?=(streams|workers)\b)")
# All that the core may import. Nothing of it has a file, a clock, a network or a log.
PURE = {
    "__future__",
    "abc",
    "collections",
    "contextlib",
    "copy",
    "difflib",
    "functools",
    "hashlib",
    "inspect",
    "itertools",
}
PURE |= {"math", "re", "typing", "warnings"}
PURE |= {"clarabel", "faiss", "llvmlite", "msgspec", "numba", "numpy", "omdml", "river", "safetensors", "scipy"}
PURE |= {"threadpoolctl"}
CALLS = {"__import__", "breakpoint", "input", "open", "print"}

# Folders of workers/, from the lowest level up. One may import from lower levels, never from its own.
LEVELS = (
    {"telemetry"},
    {"configuration"},
    {"events"},
    {"versions"},
    {"model"},
    {"learning", "node", "operate", "router"},
    {"wiring"},
    {"doctor", "demo"},
    {"backoffice"},
    {"commands"},
    {"cli"},
    {"__main__"},
)
LEVEL = {folder: number for number, folders in enumerate(LEVELS) for folder in folders}
BACKENDS = ("kafka", "redis", "psycopg", "pgvector", "lancedb", "streams.kafka", "streams.files", "streams.memory_log")
BACKENDS += ("streams.stores", "streams.catalogues", "streams.indexes")
# Modules in the folders of backends that are none: settings and sums that all backends have in common.
SHARED = {
    "streams.catalogues.changes.change",
    "streams.catalogues.inline",
    "streams.catalogues.opening",
    "streams.kafka.options",
    "streams.stores.checkpoints",
    "streams.stores.journal",
    "streams.stores.retention",
}
NAME_BACKENDS = {"wiring", "doctor", "commands", "demo"}
# The most files of a folder. One with more should become two.
FULL = 14
# The most lines of a file. One with more should become two.
LONG = 400


@cache
def modules(layer):
    """(path, syntax tree) of every module of a layer."""
    paths = sorted(path for path in (ROOT / layer).rglob("*.py") if layer_of(path.relative_to(ROOT)) == layer)
    return [(path.relative_to(ROOT), ast.parse(path.read_text())) for path in paths]


def layer_of(path):
    """The layer that a file, or a module written as a path, lies in: the last one that it begins with."""
    return next((layer for layer in reversed(LAYERS) if path.is_relative_to(layer)), None)


@cache
def imports(layer):
    """(path, module) of every import of a layer; what is imported from a package is the module, if it is one.

    ``omdml.workers`` and ``omdml.streams`` are called what their folders are.
    """
    return [(path, INSTALLED_UNDER.sub("", name)) for path, name in imports_of(modules(layer))]


def imports_of(modules):
    for path, tree in modules:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from ((path, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = path.parts[: -node.level] if node.level else ()
                package = ".".join([*above, *filter(None, [node.module])])
                for alias in node.names:
                    module = ROOT.joinpath(*package.split("."), alias.name)
                    is_module = module.is_dir() or module.with_suffix(".py").exists()
                    yield path, f"{package}.{alias.name}" if is_module else package


def top_folder(path):
    """The folder of workers/ that a file lies in, or its own name if it lies in workers/ itself."""
    return path.parts[1].removesuffix(".py")


def test_no_layer_imports_one_above_it():
    for number, layer in enumerate(LAYERS):
        above = LAYERS[number + 1 :]
        assert not [(str(path), name) for path, name in imports(layer) if layer_of(Path(*name.split("."))) in above]


def test_the_client_knows_errors_and_feedback_of_the_core_and_no_more():
    ours = {name for _, name in imports("omdml/client") if name.startswith("omdml.")}
    assert {name for name in ours if not name.startswith("omdml.client.")} == {"omdml.errors", "omdml.feedback"}


def test_the_core_knows_no_clock_file_network_or_thread():
    assert not [(str(path), name) for path, name in imports("omdml") if name.split(".")[0] not in PURE]


def test_the_core_opens_nothing_and_prints_nothing():
    called = [
        (str(path), node.func.id)
        for path, tree in modules("omdml")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS
    ]
    assert called == []


def test_every_folder_of_the_workers_has_a_level():
    folders = {top_folder(path) for path, _ in modules("workers")} - {"__init__"}
    assert folders == LEVEL.keys()


def test_a_folder_of_the_workers_imports_only_from_lower_levels():
    upward = [
        (str(path), name)
        for path, name in imports("workers")
        if name.startswith("workers.")
        and name.split(".")[1] != top_folder(path)
        and LEVEL[name.split(".")[1]] >= LEVEL[top_folder(path)]
    ]
    assert upward == []


def test_only_wiring_and_what_looks_at_an_installation_names_concrete_backends():
    named = [
        (str(path), name)
        for path, name in imports("workers")
        if top_folder(path) not in NAME_BACKENDS
        and name not in SHARED
        and any(name == backend or name.startswith(backend + ".") for backend in BACKENDS)
    ]
    assert named == []


def test_no_module_imports_a_test_module_unless_it_is_a_contract_suite():
    """What several test modules share stands in tests/support, or in a module beside them that its name describes."""
    paths = sorted((ROOT / "tests").rglob("*.py"))
    trees = [(path.relative_to(ROOT), ast.parse(path.read_text())) for path in paths]
    named = [
        (str(path), name)
        for path, name in imports_of(trees)
        if name.startswith("tests.")
        and name.rpartition(".")[2].startswith("test_")
        and not name.startswith("tests.contracts.")
    ]
    assert named == []


@pytest.mark.parametrize("layer", LAYERS)
def test_no_folder_is_too_full_to_be_read_at_a_glance(layer):
    folders = {path.parent for path, _ in modules(layer)}
    files = {folder: [path for path in (ROOT / folder).glob("*.py") if path.stem != "__init__"] for folder in folders}
    assert {str(folder): len(paths) for folder, paths in files.items() if len(paths) > FULL} == {}


@pytest.mark.parametrize("top", ["benchmarks", "deploy", "docs", "tests", "workers/node/console"])
def test_no_folder_of_tests_benchmarks_or_pages_is_too_full(top):
    files = [path for path in (ROOT / top).rglob("*") if path.suffix in (".py", ".js", ".css")]
    counts = Counter(path.parent for path in files if path.stem != "__init__")
    assert {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > FULL} == {}


@pytest.mark.parametrize("top", [*LAYERS, "benchmarks", "deploy", "docs", "tests"])
def test_no_file_of_code_is_too_long_to_be_read_in_one_go(top):
    lengths = {path: path.read_text().count("\n") for path in (ROOT / top).rglob("*") if path.suffix in (".py", ".js")}
    assert {str(path.relative_to(ROOT)): count for path, count in lengths.items() if count > LONG} == {}
