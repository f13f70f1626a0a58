"""The image's own parts that can be tried without building it."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.processes import ROOT

FOLDER = ROOT / "deploy/container"


def sh(script, **options):
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False, **options)


@pytest.fixture
def start(tmp_path):
    """Runs start.sh as if the image's kernels lay in a folder of ours, with this folder for numba's cache."""
    kernels = tmp_path / "kernels/omdml"
    kernels.mkdir(parents=True)
    (kernels / "walk.nbi").write_text("compiled")
    text = (FOLDER / "start.sh").read_text()
    assert "/opt/omdml/kernels" in text
    text = text.replace("/opt/omdml/kernels", str(tmp_path / "kernels")).replace("/opt/omdml/bin/omdml", "echo omdml")
    return lambda cache: sh(
        f"set -- worker --config x\n{text}", env={"NUMBA_CACHE_DIR": str(cache), "PATH": "/usr/bin:/bin"}
    )


def test_a_start_brings_the_kernels_and_keeps_those_compiled_since(start, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    done = start(cache)
    assert (done.returncode, done.stdout) == (0, "omdml worker --config x\n"), done.stderr
    assert (cache / "omdml/walk.nbi").read_text() == "compiled"
    (cache / "omdml/walk.nbi").write_text("compiled here")
    assert start(cache).returncode == 0
    assert (cache / "omdml/walk.nbi").read_text() == "compiled here"


def test_a_start_whose_cache_cannot_be_written_says_so_and_ends_with_2(start):
    done = start("/proc/kernels")
    assert done.returncode == 2
    assert "NUMBA_CACHE_DIR=/proc/kernels cannot be written: mount a volume or tmpfs there" in done.stderr


@pytest.mark.parametrize("below", ["deploy/container", "container"])
def test_the_start_is_found_in_the_repository_and_in_what_is_exported(tmp_path, below):
    (finding,) = re.findall(r'"\$\((find /source .+?)\)"', (FOLDER / "Dockerfile").read_text())
    # pip leaves copies of all files where it builds.
    for folder in (below, "build/lib/workers/operate/deployment_files/container"):
        (tmp_path / folder).mkdir(parents=True)
        shutil.copy(FOLDER / "start.sh", tmp_path / folder)
    assert sh(finding.replace("/source", str(tmp_path))).stdout == f"{tmp_path / below / 'start.sh'}\n"


def test_what_the_build_imports_is_installed_under_omdml():
    modules = re.findall(r"\bfrom (\S+) import", (FOLDER / "Dockerfile").read_text())
    ours = [module for module in modules if module not in sys.stdlib_module_names]
    assert len(ours) == 2
    for module in ours:
        # The repository has these folders at its top too; an installation does not.
        assert module.startswith("omdml.")
        assert importlib.util.find_spec(module), module
