"""Imports run one way: workers -> streams -> omdml; and the core stays pure."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("omdml", "streams", "workers")
IMPURE = {"asyncio", "concurrent", "datetime", "ftplib", "http", "io", "kafka", "logging", "mmap", "multiprocessing"}
IMPURE |= {"os", "pathlib", "redis", "shutil", "signal", "socket", "sqlite3", "ssl", "structlog", "subprocess"}
IMPURE |= {"tempfile", "threading", "time", "urllib"}
CALLS = {"__import__", "breakpoint", "input", "open", "print"}


def imports(layer):
    """(file, module) of every import of a layer."""
    for path in sorted((ROOT / layer).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((path.relative_to(ROOT), alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield path.relative_to(ROOT), node.module


def test_no_layer_imports_one_above_it():
    for number, layer in enumerate(LAYERS):
        above = LAYERS[number + 1 :]
        assert not [(str(path), name) for path, name in imports(layer) if name.split(".")[0] in above]


def test_the_core_knows_no_clock_file_network_or_thread():
    assert not [(str(path), name) for path, name in imports("omdml") if name.split(".")[0] in IMPURE]


def test_the_core_opens_nothing_and_prints_nothing():
    called = [
        (str(path.relative_to(ROOT)), node.func.id)
        for path in sorted((ROOT / "omdml").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS
    ]
    assert called == []
