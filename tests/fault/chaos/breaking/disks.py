"""Disks of the store in a folder: one that is full, and a checkpoint of which only a part was written."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from omdml.streams.stores.folder.layout import encoded
from tests.fault.chaos.service import MODELS, WORKERS, Service
from tests.support.processes import die_with_parent

SIZE_MB = 16
FULL_S = 3.0
ROOM = "room"


@contextmanager
def small_disk(folder: Path, access: str = "rw") -> Iterator[Path]:
    """A disk of a few megabytes, in a namespace of its own that ends with this block: needs no rights.

    ``access`` is ``ro`` for a disk that takes no writes, not even from root.
    """
    (folder / ROOM).mkdir()
    script = f"mount -t tmpfs -o {access},size={SIZE_MB}m none {folder / ROOM} && echo mounted && exec sleep infinity"
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", script]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=die_with_parent)
    try:
        text = holder.stdout.readline().decode()
        assert text == "mounted\n", f"no disk of its own for this process: {text!r}; allow user namespaces, or be root"
        yield Path(f"/proc/{holder.pid}/root{folder / ROOM}")
    finally:
        holder.kill()
        holder.communicate()


def read_only(folder: Path) -> list[str]:
    """What to put before a command so that it sees this folder on a read-only disk: needs no rights."""
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    return ["unshare", "--mount", "--map-root-user", "sh", "-c", script, str(folder)]


def full(service: Service, chance: Random) -> None:
    """There is no room left for a while: workers say so, and go on once there is."""
    before = service.said("No space left on device")
    ballast = service.store.path.parent / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        for _ in range(SIZE_MB << 10):
            file.write(bytes(1024))
    service.wait(lambda: service.said("No space left on device") > before, "a worker to say that the disk is full")
    # The fault lasts a while: workers try again in vain, several times.
    time.sleep(FULL_S)
    ballast.unlink()


def torn(service: Service, chance: Random) -> None:
    """A machine went down: of a model's newest checkpoint only the first part is on the disk."""
    folder = service.store.path / "models" / encoded(chance.choice(MODELS)) / "checkpoints"
    service.wait(lambda: len(checkpoints(folder)) > 1, "two checkpoints")
    for worker in service.workers:
        worker.kill()
    newest = checkpoints(folder)[-1]
    os.truncate(newest, chance.randrange(newest.stat().st_size))
    before = service.said("checkpoint_damaged_previous_used")
    for number in range(WORKERS):
        service.start(number)
    service.wait(lambda: service.said("checkpoint_damaged_previous_used") > before, "the older checkpoint to be used")


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a model, the oldest first."""
    return sorted(folder.glob("*/*.checkpoint"), key=lambda path: (path.parent.name, path.name))
