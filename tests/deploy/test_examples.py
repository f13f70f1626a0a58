"""The example programs run as they stand, with real processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from omdml.client import Client
from tests.support.deep import deep
from tests.support.pages.documents import blocks, read
from tests.support.processes import ROOT, die_with_parent, free_port

LIMIT_S = 300
SHARE = re.compile(r"^version (\d+): (\d+)% of the first ten", re.MULTILINE)
MOVED = re.compile(r" +\d  p\d+ +\w+ +\w+ +(new|from \d)")


@deep
def test_the_shop_learns_from_its_visitors(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "deploy/examples/shop.py"), str(free_port())], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=LIMIT_S,
        preexec_fn=die_with_parent, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    (_, before), (version, after) = SHARE.findall(done.stdout)
    assert int(version) > 0
    assert int(after) > int(before)
    rows = [line for line in done.stdout.splitlines() if MOVED.fullmatch(line)]
    assert len(rows) == 8
    # What it prints is what the page shows, but for numbers.
    (shown,) = [block.text for block in blocks(read("deploy/SHOP.md"), "") if block.text.startswith("like p7")]
    form = re.compile(r"\d+|red|blue|green|black|new|from|shirt|shoe|cup|lamp|bag| ")
    printed = done.stdout[done.stdout.index("like p7") :]
    assert [form.sub("", line) for line in printed.splitlines()] == [form.sub("", line) for line in shown.splitlines()]


def test_the_calls_that_the_page_shows_are_calls_of_the_client():
    (code,) = [block.text for block in blocks(read("deploy/SHOP.md"), "python")]
    calls = re.findall(r"\bshop\.(\w+)\(", code)
    assert len(calls) > 5
    assert [call for call in calls if not callable(getattr(Client, call, None))] == []
    compile(code, "deploy/SHOP.md", "exec")
