"""The released wheel and source archive: the same bytes each time, and they work without the source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from omdml.workers.node.http.endpoints import console
from omdml.workers.operate import deployment
from tests.support.processes import ROOT

PARTS = (
    "omdml", "streams", "workers", "deploy", "docs", "pyproject.toml", "setup.py", "MANIFEST.in", "constraints.txt",
    "README.md", "LICENSE",
)  # fmt: skip
LIMIT_S = 600
EPOCH = "1700000000"
# The learner whose kernels take the shortest time to compile.
LEARNED = """
import numpy as np, omdml, omdml.client, omdml.streams, omdml.workers
draw = np.random.default_rng(0)
features = {"color": draw.random((50, 8))}
model = omdml.Diagonal(dims={"color": 8})
model.learn_many([[0, 1, 2], [3, 4, 5]], features)
print(model.version, *(package.__file__ for package in (omdml, omdml.client, omdml.streams, omdml.workers)), sep="\\n")
"""
BUILT = "import sys, setuptools.build_meta as build; print(getattr(build, sys.argv[1])(sys.argv[2]))"
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def run(folder, *command):
    """The output of a command, run where nothing of the source is on the path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env={**environment, "SOURCE_DATE_EPOCH": EPOCH},
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_of_the_source(folder):
    folder.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, folder / part, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / part, folder / part)
    return folder


def link_required(name, folder, path, extras=frozenset()):
    """Link the packages that this one requires into a folder, with those that they require in turn.

    Other packages of this environment cannot be imported there. A download of half a gigabyte would show no more.
    """
    (package,) = metadata.distributions(name=name, path=path)
    for requirement in map(Requirement, package.requires or ()):
        if not any(
            requirement.marker is None or requirement.marker.evaluate({"extra": extra}) for extra in {"", *extras}
        ):
            continue
        required = metadata.distribution(requirement.name)
        assert requirement.specifier.contains(required.version, prereleases=True), requirement
        parts = {file.parts[0] for file in required.files} - {"..", "__pycache__"}
        missing = [part for part in parts if not (folder / part).exists()]
        for part in missing:
            (folder / part).symlink_to(required.locate_file(part))
        if missing or requirement.extras:
            link_required(requirement.name, folder, sys.path, requirement.extras)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python that has what builds the package, and nothing else."""
    place = tmp_path_factory.mktemp("builder")
    venv.create(place, with_pip=False)
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    run(place, *PIP, "--python", place / "bin/python", "install", *requires)
    return place / "bin/python"


def build(python, source, kind):
    """The file that a build of this kind makes of a source, in a folder beside it."""
    target = source.with_name(f"{source.name}-{kind}")
    target.mkdir()
    return target / run(source, python, "-c", BUILT, f"build_{kind}", target).splitlines()[-1]


@pytest.mark.deep
def test_what_is_released_is_the_same_bytes_and_works_without_the_source(tmp_path, python):
    # Given two copies of the source, of different times, and what is built of each
    sources = [copy_of_the_source(tmp_path / name) for name in ("one", "another-folder")]
    for file in sources[1].rglob("*.py"):
        os.utime(file, (1_600_000_000, 1_600_000_000))
    archives, wheel = [build(python, source, "sdist") for source in sources], build(python, sources[0], "wheel")
    # Then both archives are the same
    assert archives[0].read_bytes() == archives[1].read_bytes()
    # And what is built of the unpacked archive, whose files have other times again, is the wheel of the source
    for source in sources:
        shutil.rmtree(source)
    (tmp_path / "unpacked").mkdir()
    # Python's own extractall warns or fails without its option ``filter``, which 3.11.2 does not know.
    subprocess.run(["tar", "-xf", archives[0], "-C", tmp_path / "unpacked"], check=True)
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert build(python, unpacked, "wheel").read_bytes() == wheel.read_bytes()
    shutil.rmtree(tmp_path / "unpacked")
    # When it is installed with the packages that it requires
    empty, fresh = tmp_path / "empty", tmp_path / "venv"
    empty.mkdir()
    venv.create(fresh, with_pip=False)
    # Nothing is compiled here, because most modules are never imported.
    install = ("install", "--no-deps", "--no-compile", wheel)
    run(empty, *PIP, "--python", fresh / "bin/python", *install)
    (packages,) = fresh.glob("lib/*/site-packages")
    link_required("omdml", packages, [packages])
    # Then the command answers, and the packages learn
    assert "catalogue" in run(empty, fresh / "bin/omdml", "--help")
    version, *places = run(empty, fresh / "bin/python", "-c", LEARNED).split()
    assert version == "2"
    assert all(place.startswith(str(fresh)) for place in places)
    # And it installs no other top-level package
    files = set(zipfile.ZipFile(wheel).namelist())
    names = {name.split("/")[0] for name in files}
    assert {name for name in names if not name.endswith(".dist-info")} == {"omdml"}
    # And the console's files, and what runs it as a service, are in the wheel.
    assert {f"omdml/workers/node/console/{name}" for name in console.FILES} <= files
    run(empty, fresh / "bin/omdml", "deploy", "export", "exported")
    exported = {path: (empty / "exported" / path).read_bytes() for _, path in deployment.files()}
    assert exported == {path: source.read_bytes() for source, path in deployment.files()}


def test_a_checkout_without_links_says_what_to_do(tmp_path):
    source = copy_of_the_source(tmp_path / "source")
    # What Git writes where links are not supported.
    (source / "omdml/workers").unlink()
    (source / "omdml/workers").write_text("../workers")
    for command in ([sys.executable, "setup.py", "--version"], ["deploy/local/setup.sh", "dev"]):
        done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0
        assert "git config core.symlinks true" in done.stderr
    assert not (source / ".venv").exists()
