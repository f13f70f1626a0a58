"""A process that says how much of its resident memory is in use.

``python -m tests.fault.soak.held worker --config FILE`` runs ``omdml worker --config FILE`` as such a process.

Resident memory alone does not show a leak. Memory that was freed often lies between pieces that are in use. Then it
stays resident until malloc uses it again or gives it back to the system.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
from pathlib import Path

EVERY_S = 2.0
MB = 1e6
# Bytes: malloc's arenas beside the main one begin at multiples of this.
ARENA = 64 << 20
# The first line of a mapping in smaps says where it begins, what may be done there, and its name.
MAPPING = re.compile(r"([0-9a-f]+)-[0-9a-f]+ (\S+) \S+ \S+ \S+ *(.*)")
FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class Malloc(ctypes.Structure):
    """What ``mallinfo2`` answers. ``uordblks`` are the bytes in use, except pieces with a mapping of their own."""

    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


def used_mb() -> float:
    """The resident memory of this process in megabytes, without what malloc has freed and not given back."""
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = Malloc
    used = library.mallinfo2().uordblks
    resident = of_malloc = 0
    ours = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if mapping := MAPPING.match(line):
            start, rights, name = mapping.groups()
            ours = name == "[heap]" or (not name and rights == "rw-p" and int(start, 16) % ARENA == 0)
        elif line.startswith("Rss:"):
            size = int(line.split()[1]) * 1024
            resident += size
            of_malloc += size if ours else 0
    return (resident - max(0, of_malloc - used)) / MB


def place(pid: int) -> Path:
    """The file to which the process ``pid`` writes how much is in use."""
    return Path(f"/proc/{pid}/cwd/{pid}.used")


def _say() -> None:
    path = place(os.getpid())
    while True:
        new = path.with_suffix(".new")
        new.write_text(f"{used_mb():.2f}")
        new.replace(path)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    threading.Thread(target=_say, name="held", daemon=True).start()
    from omdml.workers.cli import main

    main()
