"""What a backup contains: every finished file of a store in a folder, read while workers write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from omdml.errors import StoreError
from omdml.streams.bounded_files import STATE_BYTES, read_regular
from omdml.streams.disk import ASIDE
from omdml.streams.stores.folder.marks import REPLACEMENTS
from omdml.streams.stores.folder.store import DirectoryStore

IDENTITY_FILES, MARKS = ("format", "store-id", "secret"), "marks"
# What a backup has of the store's folder. The lock of workers and unfinished files are left out.
ENTRIES = (*IDENTITY_FILES, REPLACEMENTS, "placements", "models", MARKS)
# How often a model is read at most, if files of it are dropped meanwhile.
PASSES = 100

File = tuple[str, bytes]


def contents(store: DirectoryStore) -> Iterator[File]:
    """The files of a store by their names in its folder; a name that ends with a slash is a folder.

    Marks come before models: a worker moves a mark after it has saved what lies below it, so that none of these marks
    is ahead of these checkpoints. Raises StoreError if a model was replaced meanwhile, which may go back.
    """
    before = store.marks([]).replacements
    for name in (*IDENTITY_FILES, REPLACEMENTS):
        # If this file is missing, no model was ever replaced.
        if name != REPLACEMENTS or (store.path / name).exists():
            yield name, read_regular(store.path / name, STATE_BYTES)
    for part in (MARKS, "placements"):
        yield f"{part}/", b""
        for path in listed(store.path / part):
            yield f"{part}/{path.name}", read_regular(path, STATE_BYTES)
    yield "models/", b""
    for folder in listed(store.path / "models"):
        for name, data in of_model(store, folder):
            yield f"models/{folder.name}/{name}", data
    if store.marks([]).replacements != before:
        raise StoreError(
            f"store {store}: a model was replaced while this backup was made (replay, bootstrap): try again"
        )


def of_model(store: DirectoryStore, folder: Path) -> list[File]:
    """The files of one model; nothing if it is deleted meanwhile.

    No file is ever written over, so what is read is whole unless a file was dropped meanwhile. Bytes are written before
    the entry that names them, and dropped after it: entries are listed first.
    """
    for _ in range(PASSES):
        try:
            paths = [path for part in ("checkpoints", "history", "snapshots") for path in below(folder / part)]
            return [file_at(path, folder) for path in paths]
        except FileNotFoundError:
            if not folder.exists():
                return []
    raise StoreError(f"store {store}: model folder {folder.name} changed {PASSES} times while it was read: try again")


def below(folder: Path) -> Iterator[Path]:
    """The contents of a folder with its sub-folders, in the order of names."""
    if folder.exists():
        yield folder
        for path in listed(folder):
            if path.is_dir():
                yield from below(path)
            else:
                yield path


def listed(folder: Path) -> list[Path]:
    """The finished files of a folder, by name."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith(ASIDE))


def file_at(path: Path, folder: Path) -> File:
    """A file, or a folder, by its name below this folder."""
    name = path.relative_to(folder).as_posix()
    return (f"{name}/", b"") if path.is_dir() else (name, read_regular(path, STATE_BYTES))
