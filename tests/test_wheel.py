"""The built wheel works where there is no source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

from omdml.workers.operate import deployment
from tests.support.processes import ROOT

PARTS = ("omdml", "streams", "workers", "deploy", "pyproject.toml", "setup.py", "constraints.txt", "README.md")
LIMIT_S = 600
LEARNED = """
import numpy as np, omdml, omdml.streams, omdml.workers
draw = np.random.default_rng(0)
features = {"color": draw.random((50, 8))}
model = omdml.LOMDML(dims={"color": 8}, rank=4)
model.learn_many([[0, 1, 2], [3, 4, 5]], features)
print(model.version, *(package.__file__ for package in (omdml, omdml.streams, omdml.workers)), sep="\\n")
"""


def run(folder, *command):
    """The output of a command, run where nothing of the source is on the path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.deep
def test_the_wheel_works_with_the_source_deleted(tmp_path):
    # Given the wheel, built from a copy of the source that is gone then
    source, empty, fresh = tmp_path / "source", tmp_path / "empty", tmp_path / "venv"
    source.mkdir()
    empty.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, source / part, symlinks=True)
        else:
            shutil.copy(ROOT / part, source / part)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(empty, *pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, source)
    shutil.rmtree(source)
    # When it is installed with what it depends on
    venv.create(fresh, with_pip=False)
    (wheel,) = tmp_path.glob("omdml-*.whl")
    run(empty, *pip, "--python", fresh / "bin/python", "install", "-c", ROOT / "constraints.txt", wheel)
    # Then the command answers, and the packages learn
    assert "catalogue" in run(empty, fresh / "bin/omdml", "--help")
    version, *places = run(empty, fresh / "bin/python", "-c", LEARNED).split()
    assert version == "2"
    assert all(place.startswith(str(fresh)) for place in places)
    # And takes no other name among the packages of whoever installs it
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"omdml"}
    # And what runs it as a service is in the wheel.
    run(empty, fresh / "bin/omdml", "deploy", "export", "exported")
    exported = {path: (empty / "exported" / path).read_bytes() for _, path in deployment.files()}
    assert exported == {path: source.read_bytes() for source, path in deployment.files()}
