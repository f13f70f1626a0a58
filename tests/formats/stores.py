"""Stores in which everything has happened once: what they write, and how it is read again."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Store
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.memory import MemoryStore
from tests.formats.redis_dump import blob, text
from tests.formats.shapes import LONG, shape
from tests.support.learning import store_samples

PARTITION = Partition("0123456789abcdef0123456789abcdef", 0)
ROWS = "rows.json"


def fill(store: Store) -> None:
    """Have everything happen once in a store."""
    epoch = store_samples.published(store, 1, 2)
    for offset in (1, 2):
        store.save(store_samples.checkpoint(offset), epoch)
    store.publish(store_samples.snapshot(3), epoch, "held for a reason")
    store.note("shop", epoch, "drift", "mistakes went up")
    store.move("shop", 1, pin=True)
    store.move_mark(PARTITION, None, 7, replacements=0)


def check_filled(store: Store) -> None:
    """Check that all that :func:`fill` did is there."""
    pointer, snapshot = store.load("shop") or (None, None)
    assert pointer
    assert snapshot
    assert (pointer.version, snapshot.version, pointer.pinned) == (1, 1, True)
    assert [line["what"] for line in store.history("shop")] == [
        "published",
        "published",
        "held",
        "drift",
        "rolled back",
    ]
    checkpoint = store.claim("shop").checkpoint
    assert checkpoint
    assert checkpoint.next == 2
    assert store.marks([PARTITION]) == {PARTITION: 7}


def write_folder(folder: Path) -> None:
    """Write a folder store in which everything has happened once."""
    store = DirectoryStore(folder)
    fill(store)
    store.read_again(PARTITION, 7)


def read_folder(folder: Path) -> None:
    """Check that a copy of the store holds all that :func:`write_folder` put there."""
    with tempfile.TemporaryDirectory() as other:
        check_filled(DirectoryStore(shutil.copytree(folder, Path(other) / "state")))


def renumber_folder(folder: Path, number: int) -> None:
    """Change the number of the layout, which is in a file of its own."""
    (folder / "format").write_text(f"{number}\n")


def write_rows(folder: Path) -> None:
    """Write the rows of a store over a database. They are the same in every database."""
    store = MemoryStore(secret=b"7" * 32)
    fill(store)
    store.place(PARTITION.topic_id, None, Placement.first("crc32", 2))
    store.note_group(PARTITION.topic_id, "omdml")
    groups = {group: dict(sorted(rows.items())) for group, rows in sorted(store.database.groups.items())}
    dumped = {group: {name: text(value) for name, value in rows.items()} for group, rows in groups.items()}
    (folder / ROWS).write_text(json.dumps(dumped, indent=1) + "\n")


def read_rows(folder: Path) -> None:
    """Check that a store over these rows holds all that :func:`write_rows` put there."""
    store = MemoryStore()
    for group, rows in json.loads((folder / ROWS).read_text()).items():
        store.database.groups[group] = {name: blob(value) for name, value in rows.items()}
    check_filled(store)
    assert store.kept_secret() == b"7" * 32
    assert store.placement(PARTITION.topic_id) == Placement.first("crc32", 2)
    assert store.group(PARTITION.topic_id) == "omdml"


def renumber_rows(folder: Path, number: int) -> None:
    """Change the number, which is in a row of its own."""
    dumped = json.loads((folder / ROWS).read_text())
    dumped["store"]["format"] = str(number)
    (folder / ROWS).write_text(json.dumps(dumped))


def shape_of_rows(folder: Path) -> dict[str, Any]:
    """The names of groups and rows, and the shape of the JSON in them."""
    return {
        f"{group}: {LONG.sub('#', name)}": shape(json.loads(value)) if value.startswith("{") else "bytes"
        for group, rows in json.loads((folder / ROWS).read_text()).items()
        for name, value in rows.items()
    }
