"""The cache folder: each piece is fetched once, whole, by one process."""

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
    """The cache folder: ``$OMDML_CACHE``, else ``$XDG_CACHE_HOME/omdml``, else ``~/.cache/omdml``."""
    chosen = os.environ.get("OMDML_CACHE")
    if chosen:
        return Path(chosen).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().resolve() / "omdml"


def once(name: str, build: Callable[[Path], None]) -> Path:
    """Return the cached folder `name`, built by `build` if it is not there yet.

    1. Wait for the lock of `name`; it is the kernel's, so a killed holder frees it.
    2. Build into a temporary folder beside the target. A crash here leaves only that folder, which the
       next holder of the lock removes.
    3. Rename it to its name. What has the name is therefore whole, and nobody needs the lock to use it.
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
            f"cannot write there ({error.strerror})",
            where=f"cache folder {place}",
            do="set OMDML_CACHE to a folder that you can write to",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
