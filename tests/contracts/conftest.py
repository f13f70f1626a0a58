"""Every store that needs no server, for the contract suites; what damages it, and what copies it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.memory import MemoryDatabase, MemoryStore
from omdml.streams.stores.retention import Retention
from omdml.streams.stores.transactional.database import Database
from omdml.streams.stores.transactional.store import TransactionalStore
from tests.support.learning.restored_stores import kept_checkpoints, put_checkpoints
from tests.support.learning.sqlite_database import SqliteDatabase
from tests.support.learning.store_samples import Copy, Damage

TWELVE = Retention(last=12)
LocalStore = DirectoryStore | TransactionalStore


@pytest.fixture(params=["memory", "directory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LocalStore:
    if request.param == "memory":
        return MemoryStore(TWELVE)
    if request.param == "sqlite":
        return TransactionalStore(SqliteDatabase(tmp_path / "store.db"), TWELVE)
    return DirectoryStore(tmp_path / "store", TWELVE)


@pytest.fixture
def other(store: LocalStore) -> LocalStore:
    """The same store once more, as another process opens it."""
    if isinstance(store, DirectoryStore):
        return DirectoryStore(store.path, TWELVE)
    return TransactionalStore(again(store.database), TWELVE)


@pytest.fixture
def damage(store: LocalStore) -> Damage:
    """Damages the newest checkpoint of "shop" that is not damaged yet."""

    def damage() -> None:
        if isinstance(store, DirectoryStore):
            sound = [path for path in store.path.rglob("*.checkpoint") if path.stat().st_size > 1]
            max(sound).write_bytes(b"?")
            return
        checkpoints = kept_checkpoints(store, "shop")
        place = 0 if len(checkpoints[0][1]) > 1 else 1
        checkpoints[place] = (checkpoints[place][0], b"?")
        put_checkpoints(store, "shop", checkpoints)

    return damage


@pytest.fixture
def remove(store: LocalStore) -> Damage:
    """Removes all checkpoints of "shop", as something else than a store would."""

    def remove() -> None:
        if isinstance(store, DirectoryStore):
            for path in store.path.rglob("*.checkpoint"):
                path.unlink()
            return
        with store.database.transaction(True) as rows:
            for name in rows.names("checkpoints/shop"):
                rows.delete("checkpoints/shop", name)

    return remove


@pytest.fixture
def copy(store: LocalStore, tmp_path: Path) -> Copy:
    def copy() -> Callable[[], None]:
        if not isinstance(store, DirectoryStore):
            checkpoints = kept_checkpoints(store, "shop")
            return lambda: put_checkpoints(store, "shop", checkpoints)
        folder, aside = store.path / "models" / "shop", tmp_path / "copy"
        shutil.copytree(folder, aside)

        def put_back() -> None:
            shutil.rmtree(folder)
            shutil.copytree(aside, folder)

        return put_back

    return copy


@pytest.fixture(params=["memory", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Every database that needs no server."""
    return MemoryDatabase() if request.param == "memory" else SqliteDatabase(tmp_path / "store.db")


@pytest.fixture
def same_database(database: Database) -> Database:
    """The same database once more, as another process opens it."""
    return again(database)


def again(database: Database) -> Database:
    """Another object for the same data; what is in memory has only one."""
    return SqliteDatabase(database.path) if isinstance(database, SqliteDatabase) else database
