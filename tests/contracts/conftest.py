"""Every store that needs no server, for the contract suites; what damages it, and what copies it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from omdml.streams.protocols.store import Store
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.memory import MemoryStore
from omdml.streams.stores.retention import Retention
from tests.support.learning.store_samples import Copy, Damage


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore(Retention(last=12))
    return DirectoryStore(tmp_path / "store", Retention(last=12))


@pytest.fixture
def damage(store: MemoryStore | DirectoryStore) -> Damage:
    """Damages the newest checkpoint of "shop" that is not damaged yet."""

    def damage() -> None:
        if isinstance(store, DirectoryStore):
            sound = [path for path in store.path.rglob("*.checkpoint") if path.stat().st_size > 1]
            max(sound).write_bytes(b"?")
            return
        checkpoints = store._models["shop"].checkpoints
        place = 0 if len(checkpoints[0][1]) > 1 else 1
        checkpoints[place] = (checkpoints[place][0], b"?")

    return damage


@pytest.fixture
def copy(store: MemoryStore | DirectoryStore, tmp_path: Path) -> Copy:
    def copy() -> Callable[[], None]:
        if isinstance(store, MemoryStore):
            checkpoints = store._models["shop"].checkpoints
            return lambda: setattr(store._models["shop"], "checkpoints", checkpoints)
        folder, aside = store.path / "models" / "shop", tmp_path / "copy"
        shutil.copytree(folder, aside)

        def put_back() -> None:
            shutil.rmtree(folder)
            shutil.copytree(aside, folder)

        return put_back

    return copy
