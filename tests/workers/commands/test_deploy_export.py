"""``omdml deploy export`` writes the files that run omdml, and overwrites nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from omdml.workers.cli import main
from omdml.workers.operate import deployment
from tests.support.pages.documents import read
from tests.support.processes import ROOT

WANTED = {
    "OPERATIONS.md",
    "RUNBOOK.md",
    "SECURITY.md",
    "compose/compose.yaml",
    "constraints.txt",
    "container/Dockerfile",
    "container/Dockerfile.dockerignore",
    "container/start.sh",
    "grafana/omdml-model.json",
    "grafana/omdml.json",
    "kubernetes/base/kustomization.yaml",
    "omdml.toml",
    "prometheus/rules.yml",
    "systemd/omdml-node@.service",
    "systemd/omdml-route@.service",
    "systemd/omdml-worker@.service",
}


def export(folder):
    return CliRunner().invoke(main, ["deploy", "export", str(folder)])


def files(folder):
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("exists", [True, False])
def test_an_empty_or_missing_folder_gets_all_files(tmp_path, exists):
    folder = tmp_path / "below/here"
    if exists:
        folder.mkdir(parents=True)
    done = export(folder)
    assert done.exit_code == 0, done.output
    written = files(folder)
    assert f"{folder}: {len(written)} files" in done.output
    assert written >= WANTED
    assert not [name for name in written if name.endswith((".py", ".pyc", "panels.toml", "build.sh"))]
    for name in written:
        original = ROOT / ("" if name == "constraints.txt" else "deploy") / name
        assert (folder / name).read_bytes() == original.read_bytes()
    assert (folder / "container/start.sh").stat().st_mode & 0o111


def test_a_folder_that_is_not_empty_is_left_as_it_is(tmp_path):
    (tmp_path / "mine").write_text("mine")
    for target in (tmp_path, tmp_path / "mine"):
        done = export(target)
        assert done.exit_code == 2
        assert "is not an empty folder: name one that is empty, or that does not exist yet" in done.output
    assert files(tmp_path) == {"mine"}


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    done = export(tmp_path / "file/below")
    assert done.exit_code == 2
    assert "Not a directory" in done.output


def test_every_folder_of_deploy_is_either_written_or_for_the_repository_alone():
    folders = {path.name for path in (ROOT / "deploy").iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert folders == {*deployment.FOLDERS, "examples", "images", "local", "producers"}


def test_the_build_of_the_image_gets_all_files_that_it_needs():
    ignored = read("deploy/container/Dockerfile.dockerignore").splitlines()
    taken = {line[1:] for line in ignored if line.startswith("!")}
    image = read("deploy/container/Dockerfile")
    # A wheel is built from these. start.sh is below `deploy` here, and below `container` in an exported folder.
    wheel = {"omdml", "streams", "workers", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md"}
    assert wheel | {"deploy", "container", "constraints.txt"} <= taken
    assert "*container/start.sh" in image
    assert {path for path in taken if not (ROOT / path).exists()} == {"container"}
    assert (ROOT / Path("deploy/container/start.sh")).stat().st_mode & 0o111
