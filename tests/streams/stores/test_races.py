"""Two who write to a store, or read it, at the same moment: what each finds."""

from __future__ import annotations

import time

import pytest

from omdml.streams.protocols.store import Written
from omdml.streams.stores import journaled
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.memory import MemoryStore
from omdml.streams.stores.retention import SPARE, Retention
from omdml.streams.stores.transactional.journal import RowJournal
from tests.support.learning.store_samples import live, published, snapshot

FEW = Retention(last=2, minutes=0, hours=0, days=0)


@pytest.fixture(params=["memory", "directory"])
def store(request, tmp_path):
    return MemoryStore(FEW) if request.param == "memory" else DirectoryStore(tmp_path / "state", FEW)


def meanwhile(monkeypatch, owner, name, something):
    """Let something happen once, right before this is called."""
    call, done = getattr(owner, name), []

    def wrapped(*arguments, **options):
        if not done:
            done.append(True)
            something()
        return call(*arguments, **options)

    monkeypatch.setattr(owner, name, wrapped)


def test_an_owner_succeeded_while_it_publishes_is_fenced(monkeypatch):
    # A folder store notices it only when the folder of the epoch is gone.
    store = MemoryStore()
    epoch = published(store, 1)
    meanwhile(monkeypatch, RowJournal, "append", lambda: store.claim("shop"))
    assert store.publish(snapshot(2), epoch) is Written.FENCED
    assert live(store).version == 1


def test_a_reader_whose_snapshot_is_dropped_gets_the_next_one(store, monkeypatch):
    epoch = published(store, 1)
    first = live(store)

    def moves_on():
        store.publish(snapshot(2), epoch)
        store.journal("shop").drop_snapshots([(first.version, first.digest)])

    meanwhile(monkeypatch, type(store.journal("shop")), "read", moves_on)
    assert store.load("shop")[1].version == 2


def test_what_an_operator_goes_back_to_while_it_is_dropped_stays(store, monkeypatch):
    epoch = published(store, *range(1, SPARE))
    thin_out, superfluous = journaled.superfluous, []

    def goes_back(*arguments):
        result = thin_out(*arguments)
        superfluous.extend(version for version, _ in result[0])
        store.move("shop", 1, pin=True)
        return result

    monkeypatch.setattr(journaled, "superfluous", goes_back)
    store.publish(snapshot(SPARE), epoch)
    assert 1 in superfluous
    assert live(store).version == 1
    assert store.load("shop")[1].version == 1


def test_a_file_that_another_writer_puts_in_place_meanwhile_is_not_missed(tmp_path, monkeypatch):
    store = DirectoryStore(tmp_path / "state", FEW)
    published(store, 1)
    journal = store.journal("shop")
    unfinished = journal.entries_path / ".an-entry.unfinished"
    unfinished.write_bytes(b"")
    meanwhile(monkeypatch, time, "time", unfinished.unlink)
    journal.drop_snapshots([])
    assert live(store).version == 1
    assert not unfinished.exists()


def test_what_is_pinned_outlasts_everything_that_is_published_after_it(store):
    epoch = published(store, 1, 2)
    store.move("shop", 1, pin=True)
    for version in range(3, 3 * SPARE):
        store.publish(snapshot(version), epoch)
    assert store.load("shop")[1].version == 1
    assert store.load("shop", 2) is None
