"""A store in a folder as one file, written while workers run, and put back while none do.

The file is a tar archive of what backup_contents.py lists. At its end ``backup.json`` holds a checksum over all that
comes before.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import io
import os
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from omdml.errors import CorruptError, StoreError, quoted
from omdml.formats import FOLDER_STORE
from omdml.streams.bounded_files import STATE_BYTES, opened
from omdml.streams.disk import ASIDE, sync, take_lock
from omdml.streams.stores.folder.backup_contents import ENTRIES, MARKS, File, contents
from omdml.streams.stores.folder.layout import reaching
from omdml.streams.stores.folder.marks import REPLACEMENTS
from omdml.streams.stores.folder.store import DirectoryStore

SEAL = "backup.json"
UNPACKED = f"{ASIDE}restore."
# Names in a path that do not lead to a file of ours.
NO_NAMES = (".", "..", "")
# What unpacking raises if a file and a folder have the same name.
CLASHES = (FileExistsError, IsADirectoryError, NotADirectoryError)


class Seal(msgspec.Struct, frozen=True):
    """What ends a backup: the number of the layout, and the sha256 of the names and bytes of all files."""

    format: int
    sha256: str


def back_up(store: DirectoryStore, target: Path) -> None:
    """Write everything in the store into one file, over one of this name; only its owner may read it.

    A crash leaves a file whose name begins with a dot, until the next backup of this name. If the store cannot be read,
    the file that was there stays. Raises StoreError if the store cannot be read, if the file cannot be written or would
    lie in the store, and if something else than a regular file has this name: a device or a pipe would be lost.
    """
    # Unlike ``Path.exists``, this returns False for a name that is too long.
    if os.path.exists(target) and not target.is_file():
        raise StoreError(f"{target}: a backup would replace it, and it is not a regular file: choose another name")
    if not store.store_id:
        raise StoreError(f"store {store}: nothing is there to back up: check store.url; the first worker makes a store")
    # A link stays: the file that it leads to is replaced.
    file = Path(os.path.realpath(target))
    if Path(os.path.realpath(store.path)) in file.parents:
        raise StoreError(
            f"{target}: it would lie in the store itself, and could replace a part of it: choose a file elsewhere"
        )
    with reaching(store):
        store.secret()
    with writing(target):
        drop_unfinished(file)
        unfinished = file.with_name(f"{ASIDE}{file.name}.{secrets.token_hex(8)}")
        try:
            write_archive(unfinished, read(store))
            os.replace(unfinished, file)
        finally:
            unfinished.unlink(missing_ok=True)
        sync(file.parent)


def read(store: DirectoryStore) -> Iterator[File]:
    """What a backup holds. The message of an error of the store's disk names the store, not the backup."""
    with reaching(store):
        yield from contents(store)


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn what the operating system refuses into a StoreError that names the backup."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"backup {target}: cannot be written ({error.strerror}): name a file in a folder that is there, writable "
            "and not full"
        ) from error


def put_back(store: DirectoryStore, file: Path) -> None:
    """Replace the store by a backup. Raises StoreError if a worker is running."""
    with reaching(store), without_workers(store):
        exchange(store.path, file)


@contextmanager
def without_workers(store: DirectoryStore) -> Iterator[None]:
    """No worker can use the store until the block ends. Raises StoreError if one, or another restore, is running."""
    store.make()
    lock = store.lock_owners(fcntl.LOCK_EX)
    if lock is None:
        shared = store.lock_owners(fcntl.LOCK_SH)
        if shared is None:
            raise StoreError(f"store {store}: another `omdml restore` is at work: wait until it has ended")
        os.close(shared)
        raise StoreError(
            f"store {store}: a worker is using it: stop the workers, restore, and start them again; nodes may stay"
        )
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def opened_backup(file: Path, store: DirectoryStore) -> Iterator[DirectoryStore]:
    """A backup as a store to read, until the block ends. It is unpacked in the folder of ``store``, which has the room.

    Raises StoreError, CorruptError as :func:`put_back` does.
    """
    prefix, place = UNPACKED, store.path
    with reaching(store), without_workers(store), tempfile.TemporaryDirectory(prefix=prefix, dir=place) as folder:
        unpack(file, Path(folder) / "backup")
        yield DirectoryStore(Path(folder) / "backup")


def exchange(folder: Path, file: Path) -> None:
    """Put the files of a backup in the place of those in the folder of a store.

    1. Unpack the backup beside them, and check it. A crash leaves the store as it was.
    2. Take the marks away. A crash from here on leaves a store without marks, at which workers stop.
    3. Exchange everything else.
    4. Put the backup's marks there, and delete the files that were exchanged, also those that a crash left.
    """
    unpacked = folder / f"{UNPACKED}{secrets.token_hex(8)}"
    try:
        unpack(file, unpacked)
    except BaseException:
        shutil.rmtree(unpacked, ignore_errors=True)
        raise
    old = unpacked / "old"
    old.mkdir()
    os.sync()
    os.replace(folder / MARKS, old / MARKS)
    sync(folder)
    for part in ENTRIES:
        if part != MARKS and (folder / part).exists():
            os.replace(folder / part, old / part)
        if part != REPLACEMENTS or (unpacked / part).exists():
            os.replace(unpacked / part, folder / part)
    sync(folder)
    for exchanged in folder.glob(f"{UNPACKED}*"):
        shutil.rmtree(exchanged, ignore_errors=True)


def drop_unfinished(target: Path) -> None:
    """Delete what killed backups to this file left. A backup that is still at work holds the lock of its own file."""
    for path in target.parent.glob(f"{ASIDE}{glob.escape(target.name)}.{'[0-9a-f]' * 16}"):
        with suppress(FileNotFoundError), opened(path) as file:
            if take_lock(file.fileno()):
                path.unlink()


def write_archive(path: Path, files: Iterator[File]) -> None:
    """Write files and their seal, and wait for the disk."""
    digest = hashlib.sha256()
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        take_lock(file.fileno())
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, data in files:
                add(archive, name, data)
                digest.update(fingerprint(name, data))
            add(archive, SEAL, msgspec.json.encode(Seal(FOLDER_STORE.number, digest.hexdigest())))
        file.flush()
        os.fsync(file.fileno())


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file or a folder."""
    member = tarfile.TarInfo(name.rstrip("/"))
    member.type, member.mode = (tarfile.DIRTYPE, 0o755) if name.endswith("/") else (tarfile.REGTYPE, 0o600)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def unpack(file: Path, target: Path) -> None:
    """Write the files of a backup into a new folder; raises StoreError or CorruptError if it is none, or damaged."""
    digest, seal = hashlib.sha256(), b""
    try:
        source = opened(file)
    except OSError as error:
        raise StoreError(f"{file}: cannot be read ({error.strerror}): name a backup that this user can read") from error
    target.mkdir()
    try:
        with source, tarfile.open(fileobj=source, mode="r:") as archive:
            for member in archive:
                data = read_member(archive, member, file)
                if member.name == SEAL:
                    seal = data
                    break
                write_member(target, member, data)
                digest.update(fingerprint(f"{member.name}/" if member.isdir() else member.name, data))
        sealed = msgspec.json.decode(seal, type=Seal)
    except (tarfile.TarError, EOFError, *CLASHES, msgspec.DecodeError) as error:
        raise CorruptError(
            f"{file} is no complete backup of a store ({error}): name a file that omdml backup wrote"
        ) from error
    FOLDER_STORE.check(sealed.format, str(file), StoreError)
    if sealed.sha256 != digest.hexdigest():
        raise CorruptError(f"{file} is damaged, because its checksum does not fit: use an older backup")


def read_member(archive: tarfile.TarFile, member: tarfile.TarInfo, file: Path) -> bytes:
    """The bytes of a file in a backup, none of a folder; raises CorruptError for anything that is not ours."""
    parts = member.name.split("/")
    is_ours = member.name == SEAL or parts[0] in ENTRIES
    if not is_ours or any(part in NO_NAMES for part in parts) or not (member.isreg() or member.isdir()):
        raise CorruptError(
            f"{file} is no backup of a store, because it holds {quoted(member.name)}: name a file that "
            "omdml backup wrote"
        )
    if member.size > STATE_BYTES:
        raise CorruptError(
            f"{file}: {quoted(member.name)} claims {member.size:,} bytes, expected at most {STATE_BYTES:,}: use "
            "an older backup"
        )
    content = archive.extractfile(member)
    data = content.read() if content else b""
    if len(data) != member.size:
        raise CorruptError(
            f"{file} is no complete backup of a store, because {quoted(member.name)} is cut short: use an older backup"
        )
    return data


def write_member(target: Path, member: tarfile.TarInfo, data: bytes) -> None:
    """Write a file or a folder of a backup; only its owner may read the secret."""
    path = target / member.name
    if member.isdir():
        path.mkdir(parents=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o600 if member.name == "secret" else 0o666
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(data)


def fingerprint(name: str, data: bytes) -> bytes:
    """The bytes of a file that go into the checksum."""
    return hashlib.sha256(name.encode()).digest() + hashlib.sha256(data).digest()
