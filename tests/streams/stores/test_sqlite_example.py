"""The example of a database keeps the rules that no contract can check for every database (CONTRIBUTING.md)."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from omdml.errors import StoreError
from tests.support.learning.sqlite_database import SqliteDatabase


def run_after_a_write(path: Path, value: bytes) -> str:
    """Write a row, as a process does that ends then, and return the run."""
    database = SqliteDatabase(path)
    with database.transaction(True) as rows:
        rows.put("group", "name", value)
    database._thread.connection.close()
    return database.run()


def test_a_look_at_a_database_creates_no_file(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "store.db")
    with database.transaction(False) as rows:
        assert (rows.get("group", "name"), rows.names("group")) == (None, [])
    assert os.listdir(tmp_path) == []
    # It sees what is written later.
    run_after_a_write(tmp_path / "store.db", b"value")
    with database.transaction(False) as rows:
        assert rows.get("group", "name") == b"value"


def test_nobody_else_may_read_any_file_of_a_database(tmp_path: Path) -> None:
    database, before = SqliteDatabase(tmp_path / "store.db"), os.umask(0)
    try:
        with database.transaction(True) as rows:
            rows.put("store", "secret", b"secret")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm", "store.db-run"), 0o600)


def test_the_run_changes_if_a_copy_is_written_over_the_file(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    run_after_a_write(path, b"before")
    shutil.copyfile(path, copy)
    acknowledged, inode = run_after_a_write(path, b"after"), path.stat().st_ino
    shutil.copyfile(copy, path)
    assert path.stat().st_ino == inode
    database = SqliteDatabase(path)
    with database.transaction(False) as rows:
        assert rows.get("group", "name") == b"before"
        assert database.run() != acknowledged


def test_the_run_stays_as_long_as_anybody_has_the_database_open(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    database = SqliteDatabase(path)
    with database.transaction(True):
        run = database.run()
    assert {run_after_a_write(path, b"value") for _ in range(3)} == {run}
    assert database.run() == run


def test_a_file_that_disappeared_is_an_error_and_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    database = SqliteDatabase(path)
    with database.transaction(True):
        pass
    path.unlink()
    database._thread.connection = None
    for write in (False, True):
        with pytest.raises(StoreError, match="unable to open"), database.transaction(write):
            pass
    assert not path.exists()
