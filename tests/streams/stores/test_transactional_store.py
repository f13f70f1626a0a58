"""What only a store over a database does; the contract is in tests/contracts."""

from __future__ import annotations

import pytest

from omdml.errors import StoreError
from omdml.streams.protocols.log import Partition
from omdml.streams.stores.memory import MemoryStore, MemoryTransaction
from tests.support.learning.store_samples import published, snapshot

PARTITION = Partition("topic", 0)


@pytest.mark.parametrize(
    ("group", "name"), [("models", "shop"), ("journal/shop", "1"), ("marks", "topic/0"), ("counts", "all")]
)
def test_a_row_that_cannot_be_read_is_named_with_what_to_do(group: str, name: str) -> None:
    store = MemoryStore()
    epoch = published(store, 1)
    store.move_mark(PARTITION, None, 7)
    store.database.groups[group][name] = b"?"
    with pytest.raises(StoreError, match=f"row {name} of group {group} cannot be read .*restore the store"):
        store.publish(snapshot(2), epoch) and store.marks([PARTITION])


def test_an_entry_that_something_else_removed_is_named_with_what_to_do() -> None:
    store = MemoryStore()
    published(store, 1)
    del store.database.groups["journal/shop"]["1"]
    with pytest.raises(StoreError, match="row 1 of group journal/shop is gone: restore the store"):
        store.current("shop")


def test_a_call_that_fails_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    epoch = published(store, 1)
    before = {group: dict(rows) for group, rows in store.database.groups.items()}

    def fail(*_: object) -> None:
        raise StoreError("away")

    # The snapshot's bytes are written before its entry.
    monkeypatch.setattr("omdml.streams.stores.transactional.journal.encode", fail)
    with pytest.raises(StoreError, match="away"):
        store.publish(snapshot(2), epoch)
    assert store.database.groups == before


def test_a_look_at_a_store_writes_nothing() -> None:
    store = MemoryStore()
    assert (store.store_id, store.models(), store.kept_secret(), store.group("topic")) == ("", [], None, "")
    assert (store.marks([PARTITION]), store.marks([]).run, store.current("shop")) == ({}, "", None)
    assert store.database.groups == {}


@pytest.mark.parametrize("models", [1, 100])
def test_a_watch_reads_no_more_if_it_watches_more_models(models: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store, reads = MemoryStore(), list[str]()
    names = [f"user-{number}" for number in range(models)]
    epochs = {name: published(store, 1, model=name) for name in names}
    watch = store.watch(names)
    store.publish(snapshot(2, model="user-0"), epochs["user-0"])
    get = MemoryTransaction.get

    def counted(rows: MemoryTransaction, group: str, name: str) -> bytes | None:
        reads.append(group)
        return get(rows, group, name)

    monkeypatch.setattr(MemoryTransaction, "get", counted)
    assert watch.wait(10) == {"user-0"}
    assert reads == ["store", "counts", "changes"]


def test_a_watch_that_missed_more_changes_than_are_kept_names_all_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omdml.streams.stores.transactional.journal.CHANGES_KEPT", 3)
    store = MemoryStore()
    epochs = {model: published(store, 1, model=model) for model in ("shop", "faces")}
    watch = store.watch(["shop", "faces"])
    for missed, expected in ((3, {"shop"}), (4, {"shop", "faces"}), (1, {"shop"})):
        for _ in range(missed):
            store.note("shop", epochs["shop"], "drift", "mistakes rose")
        assert watch.wait(10) == expected
    assert len(store.database.groups["changes"]) == 3
    watch.close()


def test_a_watch_names_all_models_if_the_store_was_restored() -> None:
    store = MemoryStore()
    epoch = published(store, 1)
    before = {group: dict(rows) for group, rows in store.database.groups.items()}
    store.publish(snapshot(2), epoch)
    watch = store.watch(["shop", "faces"])
    store.database.groups.update(before)
    assert watch.wait(10) == {"shop", "faces"}
    watch.close()


def test_no_row_names_a_model_that_was_deleted() -> None:
    store = MemoryStore()
    published(store, 1)
    store.delete("shop")
    assert store.database.groups["changes"]
    assert "shop" not in str(store.database.groups)


def test_a_write_within_a_transaction_that_only_reads_is_refused() -> None:
    store = MemoryStore()
    published(store, 1)
    with store._transaction(False), store._transaction(False), pytest.raises(RuntimeError, match="only reads"):
        store.note_group("topic", "shop")
    assert store.group("topic") == ""
    with store._transaction(True), store._transaction(False):
        store.note_group("topic", "shop")
    assert store.group("topic") == "shop"
