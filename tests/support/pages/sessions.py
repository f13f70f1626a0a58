"""Runs the commands that a page shows in one shell, on a port of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.processes import ROOT, die_with_parent

LIMIT_S = 900
MARKER = "== command"
# A request that is refused ends the session. `-f` of a page would contradict `--fail-with-body`.
STRICT_CURL = """curl() {
    case "$1" in -sf) command curl "$@" ;; *) command curl --silent --show-error --fail-with-body "$@" ;; esac
}"""
READY = "until curl -sf localhost:8080/readyz; do sleep 0.1; done"


def run_session(
    commands: Sequence[str], folder: Path, port: int, environment: Mapping[str, str] | None = None
) -> list[list[str]]:
    """Run commands in a folder; returns the lines that each of them printed. The first one that fails ends the test.

    Pages show port 8080, which is replaced by ``port``. Whatever happens, processes in the background end with the
    shell.
    """
    lines = ["set -eu", "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT", STRICT_CURL]
    for number, command in enumerate(commands):
        lines += [f"echo; echo '{MARKER}' {number}", command.replace("localhost:8080", f"localhost:{port}")]
    variables = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OMDML_NODE__BIND": f"127.0.0.1:{port}",
        # Otherwise one click in fifty is held out, and no new version follows it.
        "OMDML_GUARD__ON": "false",
        **(environment or {}),
    }
    with (folder / "errors").open("wb") as errors:
        shell = subprocess.Popen(
            ["bash", "-c", "\n".join(lines)], cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=errors,
            text=True, start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
        try:
            output, _ = shell.communicate(timeout=LIMIT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, f"{output[-2000:]}\n{(folder / 'errors').read_text()[-3000:]}"
    printed = re.split(rf"^{MARKER} \d+\n", output, flags=re.MULTILINE)[1:]
    return [part.strip().splitlines() for part in printed]
