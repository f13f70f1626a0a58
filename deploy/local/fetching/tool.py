"""Runs programs that fetch something, and turns their failures into a ServiceError."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.local.errors import ServiceError

TIME_LIMIT_S = 900.0
LAST_LINES = 15


def run(
    command: Sequence[str | Path],
    *,
    where: str,
    do: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run `command` to its end and return what it wrote to standard output.

    Raises
    ------
    ServiceError
        The program does not exist, ran longer than `TIME_LIMIT_S` seconds, or ended with a status other
        than 0. The error quotes its last lines.
    """
    shown = " ".join(str(part) for part in command[:3])
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIME_LIMIT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise ServiceError(f"the program {command[0]} is not on this machine", where=where, do=do) from error
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"'{shown} ...' did not end within {TIME_LIMIT_S:.0f} s", where=where, do=do) from error
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-LAST_LINES:])
        raise ServiceError(f"'{shown} ...' ended with status {done.returncode}", where=where, do=do, log=last)
    return done.stdout
