"""The board is one by Grafana's own types, since no Grafana can be had here to open it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deploy.grafana.board import BOARD
from deploy.local.fetching import cache
from deploy.local.fetching.tool import run

PACKAGES = ("@grafana/schema@13.2.3", "typescript@5.9.3")
TYPES = BOARD.with_name("board_types.ts").read_text()


@pytest.fixture(scope="module")
def packages():
    """A folder with Grafana's types and a compiler."""
    npm = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]

    def build(into: Path) -> None:
        run([*npm, into, *PACKAGES], where=PACKAGES[0], do="put node and npm on PATH, and let npm reach its registry")

    return cache.once("grafana-schema-13.2.3", build) / "node_modules"


def complaints(packages, folder, board):
    """What the compiler says of a board."""
    (folder / "node_modules").unlink(missing_ok=True)
    (folder / "node_modules").symlink_to(packages)
    (folder / "board.ts").write_text(f"{TYPES}{board};\n")
    options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--moduleResolution", "nodenext"]
    command = ["node", packages / "typescript/bin/tsc", *options, "board.ts"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False).stdout


@pytest.mark.deep
def test_the_board_fits_grafanas_types_and_a_mistaken_one_does_not(packages, tmp_path):
    board = BOARD.read_text()
    assert complaints(packages, tmp_path, board) == ""
    for right, wrong in {'"gridPos"': '"gridPlace"', '"refId"': '"ref"', '"type": "stat"': '"type": "number"'}.items():
        assert right in board
        assert "board.ts(" in complaints(packages, tmp_path, board.replace(right, wrong, 1)), wrong
