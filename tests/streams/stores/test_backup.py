"""``omdml backup`` and ``omdml restore``, on a store in a folder that real workers use."""

from __future__ import annotations

import errno
import io
import itertools
import os
import shutil
import stat
import tarfile
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from omdml import LOMDML
from omdml.errors import StoreError
from omdml.formats import FOLDER_STORE
from omdml.streams.disk import take_lock
from omdml.streams.files.source import FileSink
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Written
from omdml.streams.stores.folder.backups import back_up, put_back, without_workers
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.retention import Retention
from omdml.workers.cli import main
from tests.support.forks import ForkedProcess
from tests.support.learning.store_samples import checkpoint, live, published, snapshot
from tests.support.processes import wait_for
from tests.support.worlds import catalogue, events, learned_of


def omdml(*arguments: str) -> Result:
    return CliRunner().invoke(main, [arguments[0], "--config", "omdml.toml", *arguments[1:]])


def test_what_came_since_a_backup_is_learned_again_with_the_same_bytes(place: Path) -> None:
    items, sink, feedback = catalogue(place / "items"), FileSink(place / "feedback"), events(300)

    def send(count: int) -> None:
        sink.send_many([(next(feedback), "shop") for _ in range(count)])
        sink.flush()

    def taken() -> bool:
        store = DirectoryStore(place / "state")
        saved, marks = store.peek("shop"), store.marks([Partition(topic(place), 0)])
        learned = learned_of(place / "omdml.toml", store.secret())
        return bool(saved and marks) and saved.version == len(learned)

    # Given a backup that was written while a worker learned, and what it learned since
    send(100)
    worker = ForkedProcess(place, "worker", "--config", "omdml.toml", name="worker")
    wait_for(taken, "the first events to be saved", 90, worker)
    written = omdml("backup", "copy.omdml")
    assert written.exit_code == 0, written.output
    assert written.output.startswith("copy.omdml: 1 model of dir:state, ")
    assert stat.S_IMODE(os.stat("copy.omdml").st_mode) == 0o600
    secret, placement = DirectoryStore("state").secret(), DirectoryStore("state").placement(topic(place))
    send(100)
    wait_for(taken, "more events to be saved", 90, worker)
    # If it is restored while the worker lives, I expect to be told to stop it; once it is stopped, it is as it was.
    refused = omdml("restore", "copy.omdml", "--yes")
    assert refused.exit_code == 1
    assert "a worker is using it: stop the workers" in refused.output
    assert worker.stop() == 0
    before = DirectoryStore("state").peek("shop").version
    restored = omdml("restore", "copy.omdml", "--yes")
    assert restored.exit_code == 0, restored.output
    assert DirectoryStore("state").peek("shop").version < before
    assert (DirectoryStore("state").secret(), DirectoryStore("state").placement(topic(place))) == (secret, placement)
    # If a worker starts, I expect it to learn what came since, and the bytes of a run without any backup.
    send(100)
    worker = ForkedProcess(place, "worker", "--config", "omdml.toml", name="worker")
    wait_for(taken, "every event to be saved", 90, worker)
    assert worker.stop() == 0
    twin = LOMDML(dims=dict(items.dims), rank=3)
    twin.learn_many(learned_of(place / "omdml.toml", secret), items.features)
    assert DirectoryStore("state").peek("shop").state == twin.to_bytes()
    sink.close()


def topic(place: Path) -> str:
    return (place / "feedback" / "log.id").read_text().strip()


def test_a_store_whose_folder_is_gone_comes_back_with_its_secret(place: Path) -> None:
    store = DirectoryStore("state")
    epoch = published(store, 1, 2)
    store.save(checkpoint(2), epoch)
    store.move_mark(Partition("t", 0), None, 7)
    secret, history = store.secret(), store.history("shop")
    assert omdml("backup", "copy.omdml").exit_code == 0
    del store
    shutil.rmtree("state")
    assert omdml("restore", "copy.omdml", "--yes").exit_code == 0
    store = DirectoryStore("state")
    assert (store.secret(), store.history("shop"), store.marks([Partition("t", 0)])) == (
        secret, history, {Partition("t", 0): 7},
    )  # fmt: skip
    assert store.claim("shop").checkpoint == checkpoint(2)
    assert stat.S_IMODE(os.stat("state/secret").st_mode) == 0o600


def test_a_store_comes_back_with_where_its_partitions_are_read_again(place: Path) -> None:
    store, home = DirectoryStore("state"), Partition(*checkpoint().home)
    epoch = published(store, 1)
    store.move_mark(home, None, 7)
    store.replace(checkpoint(3), epoch, 3)
    back_up(store, place / "between.omdml")
    # The worker goes on, and another model is replaced
    store.move_mark(home, 3, 9, store.marks([]).replacements)
    back_up(store, place / "after.omdml")
    store.replace(checkpoint(5), epoch, 5)
    del store
    for backup, mark in (("after", 9), ("between", 3)):
        put_back(DirectoryStore("state"), place / f"{backup}.omdml")
        assert DirectoryStore("state").marks([home]) == {home: mark}


def test_a_store_that_holds_something_is_replaced_only_if_the_answer_is_yes(place: Path) -> None:
    # Given a backup, and in its place a store that learned from another log
    store = DirectoryStore("state")
    store.save(checkpoint(2), published(store, 1, 2))
    assert omdml("backup", "copy.omdml").exit_code == 0
    shutil.rmtree("state")
    store = DirectoryStore("state")
    store.save(checkpoint(5, home=("another-log", 0)), published(store, 1, 5))
    # While it is open here, a worker is using it.
    del store
    # If nobody answers, I expect to read what is there and what comes, and nothing to change.
    asked = omdml("restore", "copy.omdml")
    assert (asked.exit_code, "pass --yes if the answer is yes" in asked.output) == (2, True)
    assert "there now: 1 model, newest shop version 5" in asked.output
    assert "the backup: 1 model, newest shop version 2" in asked.output
    assert "warning: the backup was learned from another log (topic-id) than the store that it replaces" in asked.output
    assert "generation" not in asked.output
    assert DirectoryStore("state").peek("shop").version == 5
    assert omdml("restore", "copy.omdml", "--yes").exit_code == 0
    assert DirectoryStore("state").peek("shop").version == 2


def test_a_node_sees_what_was_restored_and_nothing_that_came_after_the_backup(place: Path) -> None:
    store = DirectoryStore("state")
    published(store, 1)
    assert omdml("backup", "copy.omdml").exit_code == 0
    published(store, 2)
    del store
    reader = DirectoryStore("state")
    watch = reader.watch(["shop"])
    assert live(reader).version == 2
    run = reader.marks([]).run
    assert omdml("restore", "copy.omdml", "--yes").exit_code == 0
    assert watch.wait(10) == {"shop"}
    assert live(reader).version == 1
    assert reader.marks([]).run != run
    epoch = reader.claim("shop").epoch
    assert reader.publish(snapshot(3), epoch) is Written.STORED


def test_a_store_that_cannot_be_read_is_not_backed_up_over_a_sound_copy(place: Path) -> None:
    store = DirectoryStore("state")
    store.save(checkpoint(1), published(store, 1))
    assert omdml("backup", "copy.omdml").exit_code == 0
    sound = Path("copy.omdml").read_bytes()
    newest = max(store.path.rglob("*.checkpoint"))
    newest.unlink()
    os.mkfifo(newest)
    refused = omdml("backup", "copy.omdml")
    assert refused.exit_code == 1
    assert "a named pipe, expected a regular file" in refused.output
    assert Path("copy.omdml").read_bytes() == sound
    assert [path.name for path in place.iterdir() if path.name.startswith(".")] == []


def test_a_backup_of_a_store_that_is_written_to_all_the_time_is_whole(place: Path) -> None:
    store, partition, stop = DirectoryStore("state", Retention(last=3)), Partition("t", 0), threading.Event()
    epoch = published(store, 0)

    def write() -> None:
        for number in itertools.count(1):
            store.publish(snapshot(number), epoch)
            store.save(checkpoint(number), epoch)
            store.move_mark(partition, number - 1 or None, number, 0)
            if stop.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(10):
            back_up(DirectoryStore("state"), place / f"{number}.omdml")
    finally:
        stop.set()
        writer.join()
    for number in range(10):
        copy = DirectoryStore(f"copy-{number}")
        put_back(copy, place / f"{number}.omdml")
        claim, loaded = copy.claim("shop"), copy.load("shop")
        assert loaded
        assert not claim.fell_back
        assert copy.marks([partition]).get(partition, 0) <= (claim.checkpoint.next if claim.checkpoint else 0)
        assert all(copy.load("shop", line["version"]) for line in copy.history("shop"))


def test_a_restore_looks_for_workers_before_it_unpacks_anything(place: Path) -> None:
    # Given a store that a worker uses, and a file that cannot be unpacked
    store = DirectoryStore("state")
    store.save(checkpoint(1), published(store, 1))
    Path("copy.omdml").write_bytes(b"no archive")
    refused = omdml("restore", "copy.omdml", "--yes")
    assert (refused.exit_code, "a worker is using it: stop the workers" in refused.output) == (1, True)


ARCHIVES = {
    "another archive": ["etc/passwd"],
    "outside": ["models/../../outside"],
    "a file as a folder": ["models", "models/shop"],
    "a file as a folder of folders": ["models", "models/shop/live"],
    "a folder as a file": ["models/shop", "models"],
}
WRONG = ["no archive", "cut", "one byte", "missing", "newer", "pipe", *ARCHIVES]


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_backup_is_refused_and_changes_nothing(place: Path, what: str) -> None:
    store = DirectoryStore("state")
    store.save(checkpoint(1), published(store, 1))
    assert omdml("backup", "copy.omdml").exit_code == 0
    del store
    before = {path: path.read_bytes() for path in Path("state").rglob("*") if path.is_file()}
    copy = Path("copy.omdml")
    data = copy.read_bytes()
    if what == "no archive":
        copy.write_bytes(b"no archive at all" * 1000)
    elif what in ARCHIVES:
        write_tar(copy, *ARCHIVES[what])
    elif what == "cut":
        os.truncate(copy, len(data) // 2)
    elif what == "one byte":
        copy.write_bytes(data.replace(checkpoint(1).state, b"stAte 1"))
    elif what == "pipe":
        copy.unlink()
        os.mkfifo(copy)
    elif what == "missing":
        copy.unlink()
    else:
        number = FOLDER_STORE.number
        copy.write_bytes(data.replace(b'{"format":%d,' % number, b'{"format":%d,' % (number + 1)))
    assert not copy.is_file() or copy.read_bytes() != data
    refused = omdml("restore", "copy.omdml", "--yes")
    assert refused.exit_code == {"missing": 2, "newer": 1, "pipe": 1}.get(what, 3), refused.output
    assert "copy.omdml" in refused.output
    assert "store dir:state" not in refused.output
    assert {path: path.read_bytes() for path in Path("state").rglob("*") if path.is_file()} == before
    assert not (place / "outside").exists()


def write_tar(path: Path, *names: str) -> None:
    with tarfile.open(path, "w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())


def test_a_restore_that_ends_half_way_leaves_a_store_at_which_workers_stop(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, partition = DirectoryStore("state"), Partition("t", 0)
    store.save(checkpoint(1), published(store, 1))
    store.move_mark(partition, None, 1)
    back_up(store, place / "copy.omdml")
    del store
    replace = os.replace

    def killed_at_the_models(source: Path, target: Path) -> None:
        if Path(source).name == "models":
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed_at_the_models)
    with pytest.raises(KeyboardInterrupt):
        put_back(DirectoryStore("state"), place / "copy.omdml")
    monkeypatch.undo()
    assert DirectoryStore(place / "state").marks([partition]) == {}
    put_back(DirectoryStore(place / "state"), place / "copy.omdml")
    assert DirectoryStore(place / "state").marks([partition]) == {partition: 1}
    # What was exchanged, the secret too, is gone, although the first restore could not delete it.
    assert not list((place / "state").glob(".restore.*"))


def test_what_a_killed_backup_left_is_gone_after_the_next_one_and_no_other_file(place: Path) -> None:
    store = DirectoryStore("state")
    store.save(checkpoint(1), published(store, 1))
    left, others = place / f".copy.omdml.{'a1' * 8}", [place / f".copy.omdml.{'b2' * 8}", place / ".copy.omdml.notes"]
    for path in (left, *others):
        path.write_bytes(b"?")
    with others[0].open() as at_work:
        # Another backup is being written there.
        assert take_lock(at_work.fileno())
        back_up(store, place / "copy.omdml")
        assert not left.exists()
        assert all(path.exists() for path in others)


def test_only_a_store_in_a_folder_has_such_backups(place: Path) -> None:
    file = place / "omdml.toml"
    file.write_text(file.read_text().replace("dir:state", "memory:"))
    (place / "copy.omdml").touch()
    for command in ("backup", "restore"):
        refused = omdml(command, "copy.omdml")
        assert refused.exit_code == 2
        assert "for a store in a folder" in refused.output


def test_a_backup_whose_name_no_file_system_takes_is_refused_in_a_sentence(place: Path) -> None:
    DirectoryStore(place / "state").secret()
    refused = omdml("backup", "a" * 5000)
    assert refused.exit_code == 1
    assert "File name too long" in refused.output
    assert "Traceback" not in refused.output


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_or_a_device_is_not_replaced_by_a_backup(place: Path, linked: bool) -> None:
    store = DirectoryStore(place / "state")
    os.mkfifo(place / "pipe")
    target = place / "pipe"
    if linked:
        target = place / "link"
        target.symlink_to("pipe")
    with pytest.raises(StoreError, match="not a regular file"):
        back_up(store, target)
    assert stat.S_ISFIFO(os.stat(target).st_mode)
    assert target.is_symlink() == linked
    assert "not a regular file" in omdml("backup", str(target)).output


def test_a_backup_is_written_where_a_link_leads_and_never_into_the_store(place: Path) -> None:
    published(store := DirectoryStore("state"), 1)
    Path("newest").symlink_to("copy.omdml")
    back_up(store, place / "newest")
    assert Path("newest").is_symlink()
    assert Path("copy.omdml").stat().st_size
    # A link may lead into the store, too.
    Path("link").symlink_to("state/format")
    number = Path("state/format").read_bytes()
    for target in ("link", "state/format", "state/models/copy.omdml"):
        with pytest.raises(StoreError, match="in the store itself"):
            back_up(store, Path(target))
    assert Path("state/format").read_bytes() == number


def test_a_restore_beside_another_one_is_refused(place: Path) -> None:
    published(store := DirectoryStore("state"), 1)
    back_up(store, place / "copy.omdml")
    # It would own the model as long as it is there.
    del store
    with (
        without_workers(DirectoryStore("state")),
        pytest.raises(StoreError, match="another `omdml restore` is at work"),
    ):
        put_back(DirectoryStore("state"), place / "copy.omdml")


def test_a_damaged_store_is_replaced_all_the_same(place: Path) -> None:
    store = DirectoryStore("state")
    published(store, 1)
    assert omdml("backup", "copy.omdml").exit_code == 0
    del store
    for path in Path("state/models").rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    restored = omdml("restore", "copy.omdml", "--yes")
    assert restored.exit_code == 0, restored.output
    assert "there now: " in restored.output
    assert live(DirectoryStore("state")).version == 1


def test_a_backup_that_cannot_be_written_is_no_fault_of_the_store(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(DirectoryStore("state"), 4)
    refused = omdml("backup", "nowhere/store.tar")
    assert refused.exit_code == 1
    assert refused.stderr == (
        "omdml: backup nowhere/store.tar: cannot be written (No such file or directory): name a file in a folder that "
        "is there, writable and not full\n"
    )

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("omdml.streams.stores.folder.backups.os.fsync", full)
    assert "backup store.tar: cannot be written (No space left on device)" in omdml("backup", "store.tar").stderr
    assert not list(place.glob("*store.tar*"))
