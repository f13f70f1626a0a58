"""What only a store over a database does; the contract is in tests/contracts."""

from __future__ import annotations

import pytest

from omdml.errors import StoreError
from omdml.streams.protocols.log import Partition
from omdml.streams.stores.memory import MemoryStore
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
