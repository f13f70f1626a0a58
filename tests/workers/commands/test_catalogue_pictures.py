"""`omdml catalogue build --pictures` as a real command, which may be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.streams.describers import pool
from omdml.workers.cli import main
from tests.support.catalogues.products import COUNT, TEXT, drawn, write_shop
from tests.support.deep import deep_after
from tests.support.waiting import comes_true

# More pictures than are described without other processes.
MANY = pool.FEW + 100
OMDML = [sys.executable, "-m", "omdml.workers.cli", "catalogue", "build"]


def built(*arguments):
    """The outcome of ``omdml catalogue build``, without a process of its own."""
    return CliRunner().invoke(main, ["catalogue", "build", *map(str, arguments)])


def children_of(process):
    result = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(line) for line in result.stdout.split()]


def test_a_build_from_a_folder_and_a_table_lists_what_it_left_out(tmp_path):
    table, sources = write_shop(tmp_path)
    (sources.pictures / "product-0003.png").write_bytes(drawn()[3][1][:200])
    result = built(tmp_path / "c", table, "--pictures", sources.pictures, "--text", TEXT)
    assert result.exit_code == 0, result.output
    assert f"{COUNT} items, color 720, {TEXT} " in result.stdout
    assert "product-0003.png: it is damaged" in result.stdout
    assert "1 file left out" in result.stdout


def test_nothing_to_build_from_and_options_without_a_model_are_usage_errors(tmp_path):
    for options, expected in (
        ([], "name an input, or a folder with --pictures"),
        (["--pictures", str(tmp_path), "--onnx-size", "64"], "name a model too"),
    ):
        result = built(tmp_path / "c", *options)
        assert result.exit_code == 2
        assert expected in result.output


def test_a_build_that_is_killed_leaves_nothing_half_done_and_no_process(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(MANY):
        (folder / f"p{number}.png").write_bytes(drawn()[number % COUNT][1])
    build = subprocess.Popen([*OMDML, str(tmp_path / "c"), "--pictures", str(folder)], stderr=subprocess.DEVNULL)
    unfinished = tmp_path / ".c.unfinished"
    assert comes_true(lambda: (unfinished / ".described").exists() and children_of(build.pid), 120)
    workers = children_of(build.pid)
    build.send_signal(signal.SIGKILL)
    build.wait(10)
    assert not (tmp_path / "c").exists()
    for worker in workers:
        assert comes_true(lambda pid=worker: not os.path.exists(f"/proc/{pid}/exe"), 120)
    # So few pictures are described without other processes.
    _, sources = write_shop(tmp_path / "few")
    again = built(tmp_path / "c", "--pictures", sources.pictures, "--no-map")
    assert again.exit_code == 0, again.output
    assert not unfinished.exists()
    assert len(MappedCatalogue(tmp_path / "c").ids) == COUNT


@pytest.mark.parametrize("number", deep_after(1, [signal.SIGINT, signal.SIGTERM]))
def test_a_build_that_is_interrupted_ends_without_a_catalogue(tmp_path, number):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for picture in range(MANY):
        (folder / f"p{picture}.png").write_bytes(drawn()[picture % COUNT][1])
    build = subprocess.Popen(
        [*OMDML, str(tmp_path / "c"), "--pictures", str(folder)],
        stderr=subprocess.DEVNULL,
        # A shell that runs the tests in the background has them ignore Ctrl-C, and their children too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert comes_true(lambda: (tmp_path / ".c.unfinished" / ".described").exists() and children_of(build.pid), 120)
    build.send_signal(number)
    assert build.wait(60) != 0
    assert not (tmp_path / "c").exists()
