"""An export that is killed while versions come: what is in its folder is whole, of one version, and gone on with."""

from __future__ import annotations

import numpy as np

from tests.support.catalogues.exports import error, read
from tests.support.forks import ForkedProcess
from tests.support.nodes import CONFIGURATION, stored_shop
from tests.support.processes import wait_for


def test_an_export_that_is_killed_again_and_again_is_never_half(tmp_path):
    installed = stored_shop(tmp_path)
    (tmp_path / "omdml.toml").write_text(CONFIGURATION.format(port=1))
    folder, draw = tmp_path / "out", np.random.default_rng(0)
    for number in range(6):
        process = ForkedProcess(
            tmp_path, "export", "shop", "out", "--follow", "--moved", "0.05", name=f"export-{number}"
        )
        wait_for(
            lambda name=f"export-{number}": "out: " in (tmp_path / f"{name}.log").read_text(), "a line", 60, process
        )
        for _ in range(int(draw.integers(1, 8))):
            installed.learn(4)
            installed.publish()
        process.kill() if number % 2 else process.stop()
        manifest, vectors, _ = read(folder)
        assert error(installed, vectors, manifest["version"]) <= 0.1
        process.close()
    last = ForkedProcess(tmp_path, "export", "shop", "out", "--follow", name="export-last")
    newest = installed.learner.version
    wait_for(lambda: read(folder)[0]["version"] == newest, "the newest version", 60, last)
    assert last.stop() == 0
