"""Unfinished files: those that a killed process left are removed, those that a living one writes stay."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from omdml.streams import disk
from omdml.streams.disk import drop_unfinished, put, put_if_absent, scratch_folder, take_lock, written_aside

forking = multiprocessing.get_context("fork")


def hidden_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


@pytest.fixture(autouse=True)
def nothing_cleaned_yet() -> None:
    """Let each test be the first in its process that cleans up a folder."""
    drop_unfinished.cache_clear()


def killed_as_it_writes(folder: Path) -> None:
    """Run a process that is killed when its file is on the disk, before the file gets its name."""
    killed_within(lambda: written_aside(folder, b"half"))


def killed_within(block: Callable[[], AbstractContextManager[Path]]) -> None:
    """Run a process that is killed inside this block."""

    def run() -> None:
        with block():
            os.kill(os.getpid(), signal.SIGKILL)

    process = forking.Process(target=run)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def test_what_a_killed_process_left_goes_with_the_next_file_of_the_folder(tmp_path: Path) -> None:
    killed_as_it_writes(tmp_path)
    killed_as_it_writes(tmp_path)
    # The second one has cleaned up after the first.
    assert len(hidden_files(tmp_path)) == 1
    put(tmp_path / "mark", b"7\n")
    assert [path.name for path in tmp_path.iterdir()] == ["mark"]


def test_what_a_killed_process_left_goes_from_a_folder_aside_as_well(tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    killed_as_it_writes(aside)
    assert put_if_absent(tmp_path / "entry", b"{}", aside)
    assert hidden_files(aside) == []


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    with written_aside(tmp_path, b"another's") as another:
        drop_unfinished.cache_clear()
        put(tmp_path / "mark", b"7\n")
        assert another.read_bytes() == b"another's"
        os.replace(another, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mark", "other"]


def test_a_new_file_that_another_process_removes_before_its_lock_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def late(descriptor: int) -> bool:
        # Another process cleans up between the making of a file and its lock.
        if not tries:
            (unlocked,) = tmp_path.iterdir()
            unlocked.unlink()
        tries.append(descriptor)
        return take_lock(descriptor)

    monkeypatch.setattr(disk, "take_lock", late)
    put(tmp_path / "mark", b"7\n")
    assert len(tries) == 2
    assert (tmp_path / "mark").read_bytes() == b"7\n"


def test_hidden_files_of_others_and_of_earlier_releases_stay(tmp_path: Path) -> None:
    names = [".0123456789abcdef", ".git", ".unfinished", ".0123456789abcdeg.unfinished"]
    for name in names:
        (tmp_path / name).write_bytes(b"?")
    os.mkfifo(tmp_path / ".fedcba9876543210.unfinished")
    put(tmp_path / "mark", b"7\n")
    assert hidden_files(tmp_path) == sorted([*names, ".fedcba9876543210.unfinished"])


def test_rights_of_a_file_are_those_that_were_asked_for(tmp_path: Path) -> None:
    put(tmp_path / "secret", b"?", mode=0o600)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_temporary_folder_that_a_killed_process_left_goes_with_the_next_one(temporary: Path) -> None:
    killed_within(scratch_folder)
    assert len(list(temporary.iterdir())) == 1
    with scratch_folder() as folder:
        (folder / "vectors").mkdir()
        assert list(temporary.iterdir()) == [folder]
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(temporary.iterdir()) == []


def test_temporary_folders_of_living_processes_and_of_other_users_stay(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_within(scratch_folder)
    (left,) = temporary.iterdir()
    with monkeypatch.context() as another_user:
        another_user.setattr(os, "geteuid", lambda: left.stat().st_uid + 1)
        with scratch_folder():
            pass
    assert list(temporary.iterdir()) == [left]
    with scratch_folder() as living, scratch_folder() as second:
        assert set(temporary.iterdir()) == {living, second}


def test_what_only_has_the_name_of_a_temporary_folder_stays(temporary: Path) -> None:
    target = temporary / "precious"
    target.mkdir()
    (temporary / "omdml-0123456789abcdef.unfinished").symlink_to(target)
    (temporary / "omdml-fedcba9876543210.unfinished").write_bytes(b"a file")
    before = set(temporary.iterdir())
    with scratch_folder():
        pass
    assert set(temporary.iterdir()) == before


def test_the_same_refusal_always_has_the_same_words(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as first, written_aside(tmp_path / "gone", b""):
        pass
    with pytest.raises(FileNotFoundError) as second, written_aside(tmp_path / "gone", b""):
        pass
    assert str(first.value) == str(second.value)
