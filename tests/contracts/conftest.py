"""Every store that needs no server, for the contract suites; what damages it, and what copies it."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest

from omdml.errors import StoreError
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.memory import MemoryDatabase, MemoryStore
from omdml.streams.stores.retention import Retention
from omdml.streams.stores.transactional.database import Database
from omdml.streams.stores.transactional.store import TransactionalStore
from tests.support.learning.restored_stores import copy_of, damage_newest_of, remove_from
from tests.support.learning.sqlite_database import SqliteDatabase
from tests.support.learning.store_samples import Copy, Damage

TWELVE = Retention(last=12)
LocalStore = DirectoryStore | TransactionalStore
# The databases that keep their rows at a path.
AT_PATHS = ["sqlite"]


def database_at(path: Path, name: str) -> Database:
    """A database of this name that keeps its rows at this path. Its class takes the path, and has it as ``path``."""
    assert name == "sqlite"
    return SqliteDatabase(path)


@pytest.fixture(params=["memory", "directory", *AT_PATHS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LocalStore:
    if request.param == "memory":
        return MemoryStore(TWELVE)
    if request.param == "directory":
        return DirectoryStore(tmp_path / "store", TWELVE)
    return TransactionalStore(database_at(tmp_path / "store.db", request.param), TWELVE)


@pytest.fixture
def other(store: LocalStore) -> LocalStore:
    """The same store once more, as another process opens it."""
    if isinstance(store, DirectoryStore):
        return DirectoryStore(store.path, TWELVE)
    return TransactionalStore(opened_again(store.database), TWELVE)


@pytest.fixture
def damage(store: LocalStore) -> Damage:
    """Damages the newest checkpoint of "shop" that is not damaged yet."""
    if not isinstance(store, DirectoryStore):
        return partial(damage_newest_of, store)

    def damage() -> None:
        sound = [path for path in store.path.rglob("*.checkpoint") if path.stat().st_size > 1]
        max(sound).write_bytes(b"?")

    return damage


@pytest.fixture
def remove(store: LocalStore) -> Damage:
    """Removes all checkpoints of "shop" behind the back of the store."""
    if not isinstance(store, DirectoryStore):
        return partial(remove_from, store)

    def remove() -> None:
        for path in store.path.rglob("*.checkpoint"):
            path.unlink()

    return remove


@pytest.fixture
def copy(store: LocalStore, tmp_path: Path) -> Copy:
    if not isinstance(store, DirectoryStore):
        return partial(copy_of, store)

    def copy() -> Callable[[], None]:
        folder, aside = store.path / "models" / "shop", tmp_path / "copy"
        shutil.copytree(folder, aside)

        def put_back() -> None:
            shutil.rmtree(folder)
            shutil.copytree(aside, folder)

        return put_back

    return copy


@pytest.fixture
def outage(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """The store is out of reach within this context."""

    @contextmanager
    def outage() -> Iterator[None]:
        if isinstance(store, DirectoryStore):
            # A file in the place of the folder: neither can be listed.
            aside = store.path.rename(store.path.with_name("aside"))
            store.path.touch()
            yield
            store.path.unlink()
            aside.rename(store.path)
            return

        def refuse(write: bool) -> None:
            raise StoreError(f"store {store} is out of reach")

        with monkeypatch.context() as away:
            away.setattr(store.database, "transaction", refuse)
            yield

    return outage


@pytest.fixture(params=["memory", *AT_PATHS])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Every database that needs no server."""
    return MemoryDatabase() if request.param == "memory" else database_at(tmp_path / "store.db", request.param)


@pytest.fixture
def same_database(database: Database) -> Database:
    """The same database once more, as another process opens it."""
    return opened_again(database)


@pytest.fixture(params=AT_PATHS)
def away(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A database that cannot be reached, because a file is in the place of its folder."""
    (tmp_path / "file").touch()
    return database_at(tmp_path / "file" / "store.db", request.param)


def opened_again(database: Database) -> Database:
    """Another object for the same data. Of a database in memory there is only one object, which is returned."""
    return database if isinstance(database, MemoryDatabase) else type(database)(database.path)
