"""The cache folder. Each piece is fetched only once, by one process, and appears only when it is complete."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local.errors import ServiceError
from deploy.local.terminal import say


def folder() -> Path:
    """The cache folder: ``$OMDML_CACHE``, otherwise ``$XDG_CACHE_HOME/omdml``, otherwise ``~/.cache/omdml``."""
    chosen = os.environ.get("OMDML_CACHE")
    if chosen:
        return Path(chosen).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().resolve() / "omdml"


def once(name: str, build: Callable[[Path], None]) -> Path:
    """Return the cached folder `name`. If it does not exist yet, `build` makes it.

    1. Wait for the lock of `name`. The kernel holds it, so it is free again if its holder is killed.
    2. Build into a temporary folder beside the target. A crash leaves only that folder, which the next
       holder of the lock removes.
    3. Rename the temporary folder to `name`. So a folder with this name is always complete, and can be used
       without the lock.
    """
    target = folder() / name
    if target.is_dir():
        return target
    with _locked(name):
        if target.is_dir():
            return target
        for leftover in target.parent.glob(f"{name}.part-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=f"{name}.part-", dir=target.parent))
        part.chmod(0o755)
        say(f"fetching {name} ...")
        began = time.monotonic()
        try:
            build(part)
            part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        say(f"fetched {name} in {time.monotonic() - began:.1f} s")
    return target


@contextmanager
def _locked(name: str) -> Iterator[None]:
    place = folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = (place / f"{name}.lock").open("w")
    except OSError as error:
        raise ServiceError(
            f"cannot write to it ({error.strerror})",
            where=f"cache folder {place}",
            do="set OMDML_CACHE to a folder that you can write to",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
