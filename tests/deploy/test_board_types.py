"""The boards are such by Grafana's own types, since no Grafana can be had here to open them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deploy.grafana.board import BOARD, MODEL_BOARD
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


def complaints(packages, folder, boards):
    """What the compiler says of boards, line by line. It looks at all of them in one run: most of that is its start."""
    (folder / "node_modules").symlink_to(packages)
    for name, board in boards.items():
        # A file that exports nothing would share its names with the others.
        (folder / f"{name}.ts").write_text(f"{TYPES}{board};\nexport {{}};\n")
    options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--moduleResolution", "nodenext"]
    command = ["node", packages / "typescript/bin/tsc", *options, *(f"{name}.ts" for name in boards)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    return done.stdout.splitlines()


@pytest.mark.deep
def test_the_boards_fit_grafanas_types_and_a_mistaken_one_does_not(packages, tmp_path):
    board = BOARD.read_text()
    mistakes = {'"gridPos"': '"gridPlace"', '"refId"': '"ref"', '"type": "stat"': '"type": "number"'}
    assert all(right in board for right in mistakes)
    mistaken = {f"mistake-{n}": board.replace(*words, 1) for n, words in enumerate(mistakes.items())}
    boards = {"board": board, "model-board": MODEL_BOARD.read_text()}
    lines = complaints(packages, tmp_path, {**boards, **mistaken})
    assert not [line for line in lines if line.startswith(tuple(f"{name}.ts" for name in boards))]
    for name in mistaken:
        assert any(line.startswith(f"{name}.ts(") for line in lines), name
