"""``make .venv/.kernels`` drops compiled kernels if a kernel changed, whichever folder it is in."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.support.processes import ROOT

KERNELS = ("omdml/kernels/full.py", "omdml/kernels/shared/dots.py")


@pytest.fixture
def make(tmp_path):
    """Makes the target in a folder with two kernels, each in a folder of its own with what numba compiled of it."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv").mkdir()
    for kernel in KERNELS:
        (tmp_path / kernel).parent.mkdir(parents=True)
        (tmp_path / kernel).write_text("first")

    def run():
        subprocess.run(["make", ".venv/.kernels"], cwd=tmp_path, check=True, capture_output=True, timeout=60)

    run()
    for kernel in KERNELS:
        cache = (tmp_path / kernel).parent / "__pycache__"
        cache.mkdir()
        (cache / "walk.nbi").touch()
        (cache / "walk.1.nbc").touch()
    (tmp_path / ".venv/.compiled").touch()
    return run


def touch_later(kernel):
    """Give it a date that no clock's steps can make equal to the one it had."""
    later = kernel.stat().st_mtime + 10
    os.utime(kernel, (later, later))


def compiled(folder):
    return len([*folder.rglob("*.nbi"), *folder.rglob("*.nbc"), *folder.rglob(".compiled")])


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_changed_kernel_drops_all_that_is_compiled(make, tmp_path, kernel):
    (tmp_path / kernel).write_text("second")
    touch_later(tmp_path / kernel)
    make()
    assert compiled(tmp_path) == 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_of_which_only_the_date_changed_gets_it_back(make, tmp_path, kernel):
    date = (tmp_path / kernel).stat().st_mtime_ns
    touch_later(tmp_path / kernel)
    make()
    assert compiled(tmp_path) == 2 * len(KERNELS) + 1
    assert (tmp_path / kernel).stat().st_mtime_ns == date
