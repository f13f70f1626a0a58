"""What a store in a folder promises beyond what every store does."""

import errno
import multiprocessing
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from omdml.errors import CorruptError, StoreError
from omdml.streams import disk
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Written
from omdml.streams.stores.folder import checkpoints, journal, marks
from omdml.streams.stores.folder.journal import NAMELESS_S
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.retention import Retention
from tests.support.learning.store_samples import ODD_NAMES, checkpoint, live, published, snapshot


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store", Retention(last=12))


@pytest.fixture
def again(store: DirectoryStore) -> DirectoryStore:
    """The same folder as another process sees it."""
    return DirectoryStore(store.path, store.retention)


@pytest.fixture
def sleeps_before(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets something happen between a decision to write and the write, once."""

    def arrange(module: object, name: str, meanwhile: Callable[[], object]) -> None:
        write = getattr(module, name)

        def late(*arguments: object, **options: object) -> object:
            monkeypatch.setattr(module, name, write)
            meanwhile()
            return write(*arguments, **options)

        monkeypatch.setattr(module, name, late)

    return arrange


def publish_for_ever(path: Path, first: int) -> None:
    store = DirectoryStore(path, Retention(last=12))
    epoch = store.claim("shop").epoch
    for version in range(first, first + 1_000_000):
        store.publish(snapshot(version), epoch)
        store.save(checkpoint(version), epoch)


# Processes that sleep, or die, at a bad moment


def test_an_owner_that_wakes_up_late_overwrites_no_checkpoint(
    store: DirectoryStore, again: DirectoryStore, sleeps_before: Callable[..., None]
) -> None:
    epoch = store.claim("shop").epoch
    sleeps_before(checkpoints, "put", lambda: again.save(checkpoint(3), again.claim("shop").epoch))
    store.save(checkpoint(5), epoch)
    assert store.claim("shop").checkpoint == checkpoint(3)


def test_what_a_late_owner_leaves_makes_its_successor_begin_again_from_there(
    store: DirectoryStore, again: DirectoryStore, sleeps_before: Callable[..., None]
) -> None:
    first = store.claim("shop").epoch
    second: list[str] = []
    sleeps_before(checkpoints, "put", lambda: second.append(again.claim("shop").epoch))
    store.save(checkpoint(5), first)
    assert again.save(checkpoint(3), second[0]) is Written.FENCED
    assert again.claim("shop").checkpoint == checkpoint(5)


def test_a_replacement_that_is_late_does_not_count_as_made(
    store: DirectoryStore, again: DirectoryStore, sleeps_before: Callable[..., None]
) -> None:
    first = store.claim("shop").epoch
    store.save(checkpoint(7), first)
    replacing, second = store.claim("shop").epoch, []
    # A worker goes on with what the store had
    sleeps_before(checkpoints, "put", lambda: second.append(again.claim("shop").epoch))
    assert store.replace(checkpoint(5), replacing, 5) is Written.FENCED
    assert again.save(checkpoint(9), second[0]) is Written.STORED


def test_owners_begin_again_only_once_a_replacement_is_on_the_disk(
    store: DirectoryStore, again: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch, write, replacements_seen = store.claim("shop").epoch, disk.write_durably, []

    def written(descriptor: int, data: bytes) -> None:
        if data == checkpoint(5).to_bytes():
            replacements_seen.append(again.marks([]).replacements)
        write(descriptor, data)

    monkeypatch.setattr(disk, "write_durably", written)
    assert store.replace(checkpoint(5), epoch, 5) is Written.STORED
    assert (replacements_seen, again.marks([]).replacements) == ([0], 2)


def test_a_publisher_that_wakes_up_late_moves_no_pointer(
    store: DirectoryStore, again: DirectoryStore, sleeps_before: Callable[..., None]
) -> None:
    epoch = published(store, 1)
    sleeps_before(journal, "put_if_absent", lambda: published(again, 2, 3))
    assert store.publish(snapshot(9), epoch) is Written.FENCED
    assert live(store).version == 3


@pytest.mark.parametrize("module", [checkpoints, journal])
def test_an_owner_that_wakes_up_after_its_model_was_deleted_brings_nothing_back(
    store: DirectoryStore, again: DirectoryStore, sleeps_before: Callable[..., None], module: object
) -> None:
    epoch = published(store, 1, 2)
    store.save(checkpoint(2), epoch)

    def deleted_and_claimed() -> None:
        again.delete("shop")
        published(again, 0)

    late = {
        checkpoints: ("put", store.save, checkpoint),
        journal: ("put_if_absent", store.publish, snapshot),
    }
    name, write, make = late[module]
    sleeps_before(module, name, deleted_and_claimed)
    assert write(make(9), epoch) is Written.FENCED
    assert live(store).version == 0
    assert store.claim("shop").checkpoint is None


def test_an_owner_that_is_killed_at_any_moment_leaves_a_whole_store(store: DirectoryStore) -> None:
    fork = multiprocessing.get_context("fork")
    watch = store.watch(["shop"])
    for round_ in range(8):
        owner = fork.Process(target=publish_for_ever, args=(store.path, 1000 * round_))
        owner.start()
        for _ in range(1 + 2 * round_):
            assert watch.wait(30) == {"shop"}
        owner.kill()
        owner.join()
        epoch, result, fell_back = store.claim("shop")
        assert not fell_back
        loaded = store.load("shop")
        assert loaded
        assert not result or result.version <= loaded[0].version
        assert store.save(checkpoint(1000 * round_ + 999), epoch) is Written.STORED
    watch.close()


def test_files_that_a_crash_left_half_written_count_for_nothing_and_go(store: DirectoryStore) -> None:
    epoch = published(store, 1)
    store.save(checkpoint(1), epoch)
    for folder in ("checkpoints/" + epoch, "history", "snapshots"):
        (store.path / "models" / "shop" / folder / ".0123").write_bytes(b"half")
    nameless = store.path / "models" / "shop" / "snapshots" / f"2.{'0' * 64}.safetensors"
    nameless.write_bytes(b"of a publisher that died before its entry")
    for path in (nameless, *store.path.rglob(".0123")):
        os.utime(path, (0, path.stat().st_mtime - NAMELESS_S - 1))
    assert live(store).version == 1
    assert store.claim("shop").checkpoint == checkpoint(1)
    epoch = store.claim("shop").epoch
    for version in range(2, 22):
        store.publish(snapshot(version), epoch)
        store.save(checkpoint(version), epoch)
    assert list(store.path.rglob(".0123")) == []
    assert not nameless.exists()


@pytest.mark.parametrize("saves", [3, 5])
def test_if_the_newest_checkpoint_was_removed_the_one_before_it_is_used(store: DirectoryStore, saves: int) -> None:
    epoch = store.claim("shop").epoch
    for offset in range(1, saves + 1):
        store.save(checkpoint(offset), epoch)
    max(store.path.rglob("*.checkpoint")).unlink()
    assert store.claim("shop")[1:] == (checkpoint(saves - 1), True)


def test_a_model_without_checkpoints_begins_again_only_if_deleted(
    store: DirectoryStore,
) -> None:
    store.save(checkpoint(1), store.claim("shop").epoch)
    next(store.path.rglob("*.checkpoint")).unlink()
    assert store.fell_back("shop")
    for _ in range(2):
        with pytest.raises(CorruptError, match=r"one was saved.*omdml replay --model shop --publish --replace"):
            store.claim("shop")
    store.delete("shop")
    assert store.claim("shop")[1:] == (None, False)


# What lies there


def test_two_checkpoints_are_kept_and_folders_of_former_owners_are_not(
    store: DirectoryStore,
) -> None:
    for round_ in range(5):
        epoch = store.claim("shop").epoch
        for offset in range(3):
            store.save(checkpoint(10 * round_ + offset), epoch)
    files = sorted((store.path / "models" / "shop" / "checkpoints").rglob("*.checkpoint"))
    assert [path.name.split(".")[1] for path in files] == ["41", "42"]
    folders = [path for path in (store.path / "models" / "shop" / "checkpoints").iterdir() if path.is_dir()]
    assert len(folders) == 1


def test_no_name_leads_out_of_the_folder(store: DirectoryStore, tmp_path: Path) -> None:
    for name in [*ODD_NAMES, "../../outside", "/etc"]:
        store.save(checkpoint(1, model=name, home=("../../topic", 0)), published(store, 1, model=name))
        store.move_mark(Partition(f"../{name}", 0), None, 1, 0)
    assert os.listdir(tmp_path) == ["store"]
    assert sorted(os.listdir(store.path)) == ["format", "marks", "models", "owners", "placements", "store-id"]
    assert store.models() == sorted([*ODD_NAMES, "../../outside", "/etc"])


def test_a_name_too_long_for_a_folder_is_a_store_error(store: DirectoryStore) -> None:
    with pytest.raises(StoreError, match="too long"):
        store.claim("x" * 500)


def test_strangers_files_are_left_alone(store: DirectoryStore) -> None:
    store.save(checkpoint(1), published(store, 1))
    for folder in ("checkpoints", "history"):
        (store.path / "models" / "shop" / folder / "zzz.txt").write_text("a note")
    assert live(store).version == 1
    assert store.claim("shop").checkpoint == checkpoint(1)
    assert len(store.history("shop")) == 1


def test_only_its_owner_may_read_the_secret_and_a_copy_of_the_folder_has_it(store: DirectoryStore) -> None:
    secret = store.secret()
    assert stat.S_IMODE((store.path / "secret").stat().st_mode) == 0o600
    shutil.copytree(store.path, store.path.with_name("copy"))
    assert DirectoryStore(store.path.with_name("copy")).secret() == secret


@pytest.mark.parametrize("content", [b"", b"nonsense", b"0" * 63, b"z" * 64])
def test_a_damaged_secret_is_an_error_that_names_its_file_and_shows_nothing(
    store: DirectoryStore, content: bytes
) -> None:
    store.make()
    (store.path / "secret").write_bytes(content)
    with pytest.raises(StoreError, match=rf"secret: holds {len(content)} bytes that are no secret") as caught:
        store.secret()
    assert "nonsense" not in str(caught.value)


def test_whoever_only_reads_makes_nothing_and_finds_a_store_without_anything(store: DirectoryStore) -> None:
    partition = Partition("t", 0)
    assert (store.store_id, store.models(), store.kept_secret()) == ("", [], None)
    assert (store.current("shop"), store.load("shop"), store.peek("shop"), store.history("shop")) == (None,) * 3 + ([],)
    assert (store.positions(["shop"]), store.placement("t"), store.marks([partition])) == ({}, None, {})
    watch = store.watch(["shop"])
    assert watch.wait(0.01) == set()
    store.delete("shop")
    assert not store.path.exists()
    # Readers see what the first writer makes.
    published(DirectoryStore(store.path), 1)
    assert watch.wait(10) == {"shop"}
    assert live(store).version == 1


def test_a_folder_that_is_gone_is_out_of_reach_and_not_taken_for_a_new_store(store: DirectoryStore) -> None:
    store.move_mark(Partition("t", 0), None, 1)
    shutil.rmtree(store.path)
    for ask in (store.models, lambda: store.marks([Partition("t", 0)])):
        with pytest.raises(StoreError, match="it disappeared while omdml ran"):
            ask()
    assert not store.path.exists()


def test_the_id_stays_with_the_folder_and_a_folder_emptied_gets_another(store: DirectoryStore) -> None:
    store.make()
    before = store.store_id
    assert DirectoryStore(store.path).store_id == before
    shutil.rmtree(store.path)
    assert store.current("shop") is None
    published(store, 1)
    assert live(store).store_id not in ("", before)


# What cannot be read or written


def test_a_folder_that_cannot_be_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"dir:.*file.*writable"):
        DirectoryStore(tmp_path / "file")


def test_a_full_disk_is_a_store_error_and_leaves_what_was_there(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = published(store, 1)
    store.save(checkpoint(1), epoch)
    before = sorted(store.path.rglob("*"))

    def full(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk, "write_durably", full)
    for write in (
        lambda: store.save(checkpoint(2), epoch),
        lambda: store.publish(snapshot(2), epoch),
        lambda: store.note("shop", epoch, "drift", "mistakes rose"),
        lambda: store.move_mark(Partition("t", 0), None, 1),
    ):
        with pytest.raises(StoreError, match="No space left"):
            write()
    assert sorted(store.path.rglob("*")) == before
    assert live(store).version == 1


@pytest.mark.parametrize(("mark", "begin"), [(10, 3), (10, 10), (None, 3)])
def test_an_owner_that_slept_before_it_wrote_a_mark_does_not_undo_a_rewind(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, mark: int | None, begin: int
) -> None:
    home, put = Partition("t", 0), marks.put
    if mark is not None:
        store.move_mark(home, None, mark)
    replacements = store.marks([home]).replacements

    def put_late(path: Path, data: bytes) -> None:
        monkeypatch.setattr(marks, "put", put)
        assert DirectoryStore(store.path).move_mark(home, mark, begin)
        put(path, data)

    monkeypatch.setattr(marks, "put", put_late)
    store.move_mark(home, mark, 20, replacements)
    assert store.marks([home]) == {home: begin}
    assert store.move_mark(home, begin, begin + 2, store.marks([home]).replacements)
    assert store.marks([home]) == {home: begin + 2}


@pytest.mark.parametrize("content", ["", "-5", "12 monkeys"])
def test_a_damaged_mark_is_an_error_that_names_its_file(store: DirectoryStore, content: str) -> None:
    store.move_mark(Partition("t", 0), None, 1)
    (store.path / "marks" / "t.0").write_text(content)
    with pytest.raises(StoreError, match=r"marks/t\.0"):
        store.marks([Partition("t", 0)])


@pytest.mark.parametrize("content", ["", "-", '{"count":"many"}'])
def test_a_damaged_count_of_replacements_is_an_error_that_says_what_to_do(store: DirectoryStore, content: str) -> None:
    store.move_mark(Partition("t", 0), None, 1)
    (store.path / "replacements").write_text(content)
    with pytest.raises(StoreError, match=r"replacements: .*stop the workers and remove it"):
        store.marks([Partition("t", 0)])


def test_a_damaged_pointer_is_an_error_that_names_its_file(store: DirectoryStore) -> None:
    published(store, 1, 2)
    newest = max((store.path / "models" / "shop" / "history").iterdir())
    newest.write_bytes(newest.read_bytes()[:20])
    with pytest.raises(StoreError, match=r"history/000000000002\.json"):
        store.current("shop")
    newest.unlink()
    assert live(store).version == 1


# Watches


def test_no_publication_is_missed_however_fast_they_follow(store: DirectoryStore) -> None:
    epoch = published(store, 0)
    watch = store.watch(["shop"])
    for version in range(1, 101):
        store.publish(snapshot(version), epoch)
        assert watch.wait(10) == {"shop"}
    assert watch.wait(0.05) == set()
    watch.close()


@pytest.mark.parametrize("harm", [lambda path: path.write_bytes(b"?"), Path.unlink])
def test_a_snapshot_that_was_damaged_comes_back_with_its_next_publication(
    store: DirectoryStore, harm: Callable[[Path], object]
) -> None:
    epoch = published(store, 4)
    (path,) = store.path.rglob("*.safetensors")
    harm(path)
    assert store.publish(snapshot(4), epoch) is Written.ALREADY
    loaded = store.load("shop")
    assert loaded
    assert loaded[1].to_bytes() == snapshot(4).to_bytes()
