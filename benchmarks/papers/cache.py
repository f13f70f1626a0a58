"""Results kept by content: of the code that computes them, its parameters, the data files and the numeric libraries."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.metadata
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.quality import data_folder
from deploy.local.fetching.cache import folder
from omdml.blas import one_blas_thread

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("numba", "numpy", "scipy")
# Packages whose code is followed from name to name. Of omdml everything counts.
LOCAL = ("benchmarks", "streams", "workers")


class Kept(NamedTuple):
    """What one unit of a table gave, and what it took."""

    result: Any
    # Processor time, so that other work on the machine does not count.
    seconds: float


def unit_of(table: str, unit: Mapping[str, Any]) -> Kept:
    """The result of a unit of the table with this module's name, kept from an earlier run or computed now."""
    module = importlib.import_module(table)
    with one_blas_thread():
        return kept_result(module, unit) or compute(module, unit)


def kept_result(table: ModuleType, unit: Mapping[str, Any]) -> Kept | None:
    """The kept result of a unit of a table; None if there is none, or if its file is damaged."""
    try:
        return Kept(**json.loads(path(table, unit).read_text()))
    # There is no file, it is no JSON, or it has other keys.
    except (FileNotFoundError, ValueError, TypeError):
        return None


def compute(table: ModuleType, unit: Mapping[str, Any]) -> Kept:
    """Run one unit, and keep its result, whole or not at all."""
    place = path(table, unit)
    # Before the work: what cannot be kept is not begun.
    place.parent.mkdir(parents=True, exist_ok=True)
    began = time.process_time()
    result = Kept(table.run(**unit), time.process_time() - began)
    part = place.with_suffix(f".part{os.getpid()}")
    part.write_text(json.dumps(result._asdict()))
    part.replace(place)
    return result


def path(table: ModuleType, unit: Mapping[str, Any]) -> Path:
    """The file of a unit's result. Its name is a digest of everything that the result depends on."""
    inputs = json.dumps([core(), data(tuple(table.DATA)), versions(needs(table)), unit], sort_keys=True)
    digest = hashlib.sha256((inputs + code(table.__name__)).encode())
    return folder() / "papers" / name_of(table) / f"{digest.hexdigest()[:32]}.json"


def name_of(table: ModuleType) -> str:
    """The name that the command line, the page and the kept results use."""
    return table.__name__.removeprefix("benchmarks.").removeprefix("papers.").replace(".", "_")


def needs(table: ModuleType) -> Sequence[str]:
    """Packages of the extra ``papers`` that a table computes with: its ``NEEDS``, if it has any."""
    return getattr(table, "NEEDS", ())


def versions(names: Sequence[str]) -> list[str]:
    """Name and installed version of each of these packages, as text."""
    return [f"{name} {importlib.metadata.version(name)}" for name in names]


@cache
def core() -> str:
    """Digest of the code of omdml, and of the versions of what it computes with."""
    code = [ast.dump(plain(source)) for source in sorted((ROOT / "omdml").rglob("*.py"))]
    return hashlib.sha256("".join([*versions(LIBRARIES), *code]).encode()).hexdigest()


@cache
def code(table: str) -> str:
    """All that computes the results of the table with this module's name."""
    return "".join(used(table, "run"))


@cache
def data(names: Sequence[str]) -> list[str]:
    """Digests of the files of these data sets, because other data means other results."""
    return [hashlib.sha256((data_folder() / f"{name}.npz").read_bytes()).hexdigest() for name in names]


@cache
def plain(source: Path) -> ast.Module:
    """A file's code without comments and docstrings."""
    tree = ast.parse(source.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Pass()
    return tree


def used(module: str, name: str, seen: set[tuple[str, str]] | None = None) -> Iterator[str]:
    """Code of a module's top-level ``name`` and, once each, of all that it names in turn in our own packages.

    So the text that a table writes about its results can change without computing them again.
    """
    seen = set() if seen is None else seen
    if (module, name) in seen:
        return
    seen.add((module, name))
    place = ROOT / module.replace(".", "/")
    tree = plain(place / "__init__.py" if place.is_dir() else place.with_suffix(".py"))
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in LOCAL:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    yield from used(node.module, alias.name, seen)
        elif name in defined(node):
            yield ast.dump(node)
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name):
                    yield from used(module, inner.id, seen)


def defined(node: ast.stmt) -> set[str]:
    """Names that a top-level statement gives a meaning; a comprehension's variables mean nothing outside it."""
    targets: list[ast.AST] = [node]
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Assign():
            targets = [*node.targets]
        case ast.AnnAssign() | ast.AugAssign():
            targets = [node.target]
    stored = (inner for target in targets for inner in ast.walk(target))
    return {inner.id for inner in stored if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
