"""What every store promises. The class runs here over memory and folders, in tests/integration/ over real servers."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from omdml.errors import CorruptError, StoreError, StoreLost
from streams.protocols import Partition, Store, Watch, Written
from streams.stores.directory import DirectoryStore
from streams.stores.memory import MemoryStore
from streams.stores.retention import Retention
from tests.store_samples import ODD_NAMES, checkpoint, live, published, snapshot, told

Damage = Callable[[], None]


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
        kept = store._models["shop"].checkpoints
        at = 0 if len(kept[0][1]) > 1 else 1
        kept[at] = (kept[at][0], b"?")

    return damage


class TestAnyStore:
    """The contract. A module that runs it brings fixtures ``store`` (keeping 12 snapshots) and ``damage``."""

    # Checkpoints

    def test_a_new_owner_finds_nothing_then_what_was_saved_last(self, store: Store) -> None:
        epoch, found, fell_back = store.claim("shop")
        assert (found, fell_back) == (None, False)
        for offset in (7, 9):
            assert store.save(checkpoint(offset), epoch) is Written.STORED
        assert store.claim("shop")[1:] == (checkpoint(9), False)

    def test_an_owner_is_fenced_as_soon_as_there_is_another(self, store: Store) -> None:
        first, second = store.claim("shop").epoch, store.claim("shop").epoch
        assert first < second
        assert store.save(checkpoint(5), first) is Written.FENCED
        assert store.publish(snapshot(5), first) is Written.FENCED
        assert store.save(checkpoint(4), second) is Written.STORED
        assert store.current("shop") is None

    def test_of_many_who_claim_at_once_exactly_one_may_save(self, store: Store) -> None:
        epochs: list[str] = []
        threads = [threading.Thread(target=lambda: epochs.append(store.claim("shop").epoch)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(epochs)) == 8
        outcomes = [store.save(checkpoint(1), epoch) for epoch in epochs]
        assert sorted(outcomes) == [Written.FENCED] * 7 + [Written.STORED]

    def test_positions_are_those_of_the_newest_checkpoints(self, store: Store) -> None:
        for model, offsets in {"shop": (5, 8), "a/b": (3,), "only claimed": ()}.items():
            epoch = store.claim(model).epoch
            for offset in offsets:
                store.save(checkpoint(offset, model=model), epoch)
        assert store.positions(["shop", "a/b", "only claimed", "unheard of"]) == {
            "shop": (Partition("topic-id", 3), 8),
            "a/b": (Partition("topic-id", 3), 3),
        }
        assert store.positions([]) == {}

    def test_a_checkpoint_that_was_found_to_be_damaged_has_no_position(self, store: Store, damage: Damage) -> None:
        epoch = store.claim("shop").epoch
        for offset in (5, 8):
            store.save(checkpoint(offset), epoch)
        damage()
        epoch = store.claim("shop").epoch
        assert store.positions(["shop"]) == {}
        store.save(checkpoint(6), epoch)
        assert store.positions(["shop"])["shop"].next == 6

    def test_a_save_that_is_sent_again_changes_nothing(self, store: Store) -> None:
        epoch = store.claim("shop").epoch
        store.save(checkpoint(5), epoch)
        assert store.save(checkpoint(5), epoch) is Written.ALREADY

    def test_a_save_that_arrives_late_overwrites_nothing(self, store: Store) -> None:
        epoch = store.claim("shop").epoch
        store.save(checkpoint(5), epoch)
        store.save(checkpoint(8), epoch)
        assert store.save(checkpoint(5), epoch) is Written.FENCED
        assert store.claim("shop").checkpoint == checkpoint(8)

    def test_other_bytes_at_the_same_position_are_stored(self, store: Store) -> None:
        epoch = store.claim("shop").epoch
        store.save(checkpoint(5), epoch)
        assert store.save(checkpoint(5, state=b"adopted"), epoch) is Written.STORED
        assert store.claim("shop").checkpoint == checkpoint(5, state=b"adopted")

    @pytest.mark.parametrize("home", [("topic-id", 4), ("another.topic/id", 3)])
    def test_a_new_home_may_begin_at_a_lower_offset(self, store: Store, home: tuple[str, int]) -> None:
        epoch = store.claim("shop").epoch
        store.save(checkpoint(500), epoch)
        assert store.save(checkpoint(2, home=home), epoch) is Written.STORED
        assert store.claim("shop").checkpoint == checkpoint(2, home=home)

    def test_a_damaged_checkpoint_falls_back_to_the_one_before_it(self, store: Store, damage: Damage) -> None:
        epoch = store.claim("shop").epoch
        for offset in (1, 2, 3):
            store.save(checkpoint(offset), epoch)
        damage()
        with structlog.testing.capture_logs() as logs:
            claim = store.claim("shop")
        assert claim[1:] == (checkpoint(2), True)
        assert [(line["event"], line["log_level"]) for line in logs] == [("checkpoint_damaged", "error")]

        # If that owner dies before it saves, I expect its successor to hear of it too.
        claim = store.claim("shop")
        assert claim[1:] == (checkpoint(2), True)

        # If its successor saves, behind the damaged one, I expect a sound checkpoint behind the newest again.
        for offset in (2, 3):
            assert store.save(checkpoint(offset, state=b"replayed"), claim.epoch) is Written.STORED
        assert store.claim("shop")[1:] == (checkpoint(3, state=b"replayed"), False)
        damage()
        assert store.claim("shop")[1:] == (checkpoint(2, state=b"replayed"), True)

    def test_damage_to_all_checkpoints_stops_with_what_to_do(self, store: Store, damage: Damage) -> None:
        epoch = store.claim("shop").epoch
        store.save(checkpoint(1), epoch)
        store.save(checkpoint(2), epoch)
        damage()
        damage()
        for _ in range(2):
            with pytest.raises(CorruptError, match="delete the model there to learn it anew"):
                store.claim("shop")

    def test_the_only_checkpoint_being_damaged_is_not_a_fresh_start(self, store: Store, damage: Damage) -> None:
        store.save(checkpoint(1), store.claim("shop").epoch)
        damage()
        with pytest.raises(CorruptError):
            store.claim("shop")

    def test_an_owner_that_the_store_has_forgotten_is_told(self, store: Store) -> None:
        epoch = store.claim("shop").epoch
        store.delete("shop")
        with pytest.raises(StoreLost, match="shop"):
            store.save(checkpoint(1), epoch)
        with pytest.raises(StoreLost, match="shop"):
            store.publish(snapshot(1), epoch)

    def test_marks_are_absent_until_set(self, store: Store) -> None:
        first, second, odd = Partition("t", 0), Partition("t", 1), Partition("a/b c", 10)
        assert store.marks([first, second]) == {}
        assert store.move_mark(first, None, 10)
        assert store.move_mark(odd, None, 1 << 50)
        assert store.move_mark(first, 10, 12)
        assert store.marks([first, second, odd]) == {first: 12, odd: 1 << 50}
        assert store.marks([]) == {}

    def test_a_mark_that_is_not_as_its_owner_left_it_is_not_moved(self, store: Store) -> None:
        one = Partition("t", 0)
        assert not store.move_mark(one, 5, 10)
        assert store.marks([one]) == {}
        assert store.move_mark(one, None, 10)
        assert store.move_mark(one, None, 10), "a retry"
        assert not store.move_mark(one, None, 12)
        assert store.move_mark(one, 10, 4)
        assert store.marks([one]) == {one: 4}

    def test_the_run_is_the_same_for_all_who_look_and_however_often(self, store: Store) -> None:
        run = store.marks([]).run
        assert run
        published(store, 1, 2)
        store.move_mark(Partition("t", 0), None, 10)
        assert store.marks([Partition("t", 0)]).run == run

    def test_a_look_at_the_newest_checkpoint_takes_it_from_nobody(self, store: Store) -> None:
        assert store.peek("shop") is None
        epoch = store.claim("shop").epoch
        assert store.peek("shop") is None
        store.save(checkpoint(3), epoch)
        store.save(checkpoint(5), epoch)
        assert store.peek("shop") == checkpoint(5)
        assert store.save(checkpoint(7), epoch) is Written.STORED

    def test_a_deleted_model_leaves_nothing_behind(self, store: Store) -> None:
        first = published(store, 1, 2)
        store.save(checkpoint(5), first)
        published(store, 1, model="other")
        assert store.models() == ["other", "shop"]
        store.delete("shop")
        store.delete("shop")
        assert store.models() == ["other"]
        assert (store.current("shop"), store.load("shop"), store.load("shop", 1)) == (None, None, None)
        assert store.history("shop") == []
        second = store.claim("shop")
        assert second.checkpoint is None
        assert store.save(checkpoint(1), first) is Written.FENCED
        assert store.save(checkpoint(1), second.epoch) is Written.STORED
        assert live(store, "other").version == 1

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_any_name_will_do(self, store: Store, name: str) -> None:
        epoch = published(store, 1, model=name)
        store.save(checkpoint(1, model=name), epoch)
        assert store.models() == [name]
        assert store.claim(name).checkpoint == checkpoint(1, model=name)
        watch = store.watch([name])
        store.publish(snapshot(2, model=name), store.claim(name).epoch)
        assert watch.wait(10) == {name}
        watch.close()
        store.delete(name)
        assert store.models() == []

    # Snapshots

    def test_nothing_is_live_before_the_first_publication(self, store: Store) -> None:
        store.claim("shop")
        assert (store.current("shop"), store.load("shop"), store.load("shop", 1)) == (None, None, None)
        assert store.history("shop") == []
        with pytest.raises(StoreError, match="versions kept: none"):
            store.move("shop", None, pin=True)

    def test_what_is_published_is_live(self, store: Store) -> None:
        epoch = published(store, 0, 4)
        loaded = store.load("shop")
        assert loaded
        pointer, found = loaded
        assert pointer == live(store)
        assert (pointer.serial, pointer.version, pointer.epoch, pointer.pinned) == (2, 4, epoch, False)
        assert pointer.digest == found.digest == snapshot(4).digest
        assert pointer.store_id
        assert found.to_bytes() == snapshot(4).to_bytes()
        assert told(store, "what", "version", "serial") == [("published", 0, 1), ("published", 4, 2)]

    def test_a_publication_that_is_sent_again_changes_nothing(self, store: Store) -> None:
        epoch = published(store, 4)
        assert store.publish(snapshot(4), epoch) is Written.ALREADY
        assert live(store).serial == 1
        assert len(store.history("shop")) == 1

    def test_a_publication_that_arrives_late_changes_nothing(self, store: Store) -> None:
        epoch = published(store, 4, 6)
        assert store.publish(snapshot(4), epoch) is Written.FENCED
        assert live(store).version == 6

    def test_a_successor_may_begin_below_what_its_predecessor_published(self, store: Store) -> None:
        published(store, 4, 6)
        second = published(store, 5, 6)
        assert store.publish(snapshot(6), second) is Written.ALREADY
        assert told(store, "version", "serial") == [(4, 1), (6, 2), (5, 3), (6, 4)]

    def test_a_successor_that_publishes_the_same_bytes_again_does_not_move_the_pointer(self, store: Store) -> None:
        published(store, 4)
        assert store.publish(snapshot(4), store.claim("shop").epoch) is Written.ALREADY
        assert live(store).serial == 1

    def test_other_bytes_of_the_same_version_go_live(self, store: Store) -> None:
        epoch = published(store, 4)
        assert store.publish(snapshot(4, seed=99), epoch) is Written.STORED
        assert live(store).digest == snapshot(4, seed=99).digest
        loaded = store.load("shop", 4)
        assert loaded
        assert loaded[1].digest == snapshot(4, seed=99).digest

    def test_a_rollback_moves_forward_and_holds_back_what_comes_next(self, store: Store) -> None:
        epoch = published(store, 1, 2, 3)
        pointer = store.move("shop", 1, pin=True)
        assert pointer == live(store)
        assert (pointer.serial, pointer.version, pointer.pinned) == (4, 1, True)
        assert store.publish(snapshot(5), epoch) is Written.STORED
        assert store.publish(snapshot(5), epoch) is Written.ALREADY
        assert live(store) == pointer

        # If it is unpinned, I expect the newest publication to go live, and the next one.
        assert store.move("shop", None, pin=False).version == 5
        assert store.publish(snapshot(6), epoch) is Written.STORED
        assert (live(store).version, live(store).serial) == (6, 6)
        assert told(store, "what", "version", "serial", "pinned", "reason")[3:] == [
            ("rolled back", 1, 4, True, ""),
            ("held", 5, 4, True, "pinned"),
            ("unpinned", 5, 5, False, ""),
            ("published", 6, 6, False, ""),
        ]

    def test_a_version_is_unpinned_where_it_is(self, store: Store) -> None:
        epoch = published(store, 1, 2)
        store.move("shop", 1, pin=True)
        assert store.move("shop", 1, pin=False).version == 1
        assert store.publish(snapshot(3), epoch) is Written.STORED
        assert live(store).version == 3

    def test_a_snapshot_held_back_is_kept_with_the_reason(self, store: Store) -> None:
        epoch = store.claim("shop").epoch
        assert store.publish(snapshot(1), epoch, held="mistakes rose") is Written.STORED
        assert store.current("shop") is None
        assert store.load("shop") is None
        store.publish(snapshot(2), epoch)
        assert store.publish(snapshot(3), epoch, held="mistakes rose") is Written.STORED
        assert store.publish(snapshot(3), epoch, held="mistakes rose") is Written.ALREADY
        assert live(store).version == 2
        assert told(store, "what", "version", "serial", "reason") == [
            ("held", 1, 0, "mistakes rose"),
            ("published", 2, 1, ""),
            ("held", 3, 1, "mistakes rose"),
        ]
        loaded = store.load("shop", 3)
        assert loaded
        assert (loaded[0].serial, loaded[1].to_bytes()) == (0, snapshot(3).to_bytes())

        # If it is let go after all, I expect it live.
        assert store.publish(snapshot(3), epoch) is Written.STORED
        assert (live(store).version, live(store).serial) == (3, 2)

    def test_an_older_version_comes_with_the_pointer_of_its_time(self, store: Store) -> None:
        epoch = published(store, 1)
        first = live(store)
        store.publish(snapshot(2), epoch)
        loaded = store.load("shop", 1)
        assert loaded
        assert loaded[0] == first
        assert loaded[1].to_bytes() == snapshot(1).to_bytes()

    def test_a_version_that_is_not_kept_is_refused_with_those_that_are(self, store: Store) -> None:
        published(store, 1, 2)
        with pytest.raises(StoreError, match=r"version 7 .* versions kept: 1, 2"):
            store.move("shop", 7, pin=True)
        assert store.load("shop", 7) is None

    def test_old_snapshots_go_but_neither_the_last_ones_nor_what_is_live(self, store: Store) -> None:
        epoch = published(store, 1, 2)
        store.move("shop", 1, pin=True)
        for version in range(3, 50):
            assert store.publish(snapshot(version), epoch) is Written.STORED
        kept = {version for version in range(50) if store.load("shop", version)}
        assert {1, *range(38, 50)} <= kept
        assert len(kept) < 30
        assert {version for (version,) in told(store, "version")} == kept
        assert live(store).version == 1
        assert store.move("shop", None, pin=False).version == 49

    def test_a_note_tells_of_what_is_live_and_moves_nothing(self, store: Store) -> None:
        epoch = store.claim("shop").epoch
        assert store.note("shop", epoch, "drift", "mistakes rose") is Written.ALREADY
        assert store.history("shop") == []
        store.publish(snapshot(1), epoch)
        before = store.current("shop")
        assert store.note("shop", epoch, "drift", "mistakes rose") is Written.STORED
        assert store.current("shop") == before
        assert told(store, "what", "version", "serial", "reason") == [
            ("published", 1, 1, ""),
            ("drift", 1, 1, "mistakes rose"),
        ]
        assert store.note("shop", "another", "drift", "") is Written.FENCED
        assert live(store).version == 1
        assert store.move("shop", 1, pin=False).version == 1

    def test_unpinning_leads_to_what_the_pin_kept_from_going_live_but_not_to_what_was_held_for_a_reason(
        self, store: Store
    ) -> None:
        epoch = store.claim("shop").epoch
        store.publish(snapshot(1), epoch)
        store.publish(snapshot(2), epoch, held="mistakes rose")
        store.move("shop", 1, pin=True)
        assert store.move("shop", None, pin=False).version == 1
        store.move("shop", 1, pin=True)
        store.publish(snapshot(3), epoch)
        assert store.move("shop", None, pin=False).version == 3

    def test_two_who_publish_at_once_both_get_into_the_history(self, store: Store) -> None:
        epoch = store.claim("shop").epoch
        operator = threading.Thread(target=lambda: [store.move("shop", None, pin=False) for _ in range(10)])
        store.publish(snapshot(0), epoch)
        operator.start()
        for version in range(1, 11):
            store.publish(snapshot(version), epoch)
        operator.join()
        serials = [serial for (serial,) in told(store, "serial")]
        assert serials == list(range(1, 22))
        assert live(store).version == 10

    # Watches

    def test_a_watch_tells_of_the_models_it_was_asked_about(self, store: Store) -> None:
        epochs = {model: published(store, 1, model=model) for model in ("shop", "faces", "other")}
        watch = store.watch(["shop", "faces"])
        assert watch.wait(0.05) == set()
        for model in ("other", "faces"):
            store.publish(snapshot(2, model=model), epochs[model])
        assert watch.wait(10) == {"faces"}
        store.move("shop", 1, pin=True)
        assert watch.wait(10) == {"shop"}
        assert watch.wait(0) == set()
        watch.close()

    def test_a_watch_wakes_up_while_it_waits(self, store: Store, watching: Callable[[], Watch]) -> None:
        epoch = published(store, 1)
        watch = watching()
        later = threading.Timer(0.1, lambda: store.publish(snapshot(2), epoch))
        later.start()
        assert watch.wait(30) == {"shop"}
        later.join()

    def test_a_watch_may_come_before_the_model(self, store: Store, watching: Callable[[], Watch]) -> None:
        watch = watching()
        published(store, 1)
        assert watch.wait(10) == {"shop"}

    def test_a_watch_of_no_model_just_waits(self, store: Store) -> None:
        watch = store.watch([])
        assert watch.wait(0.01) == set()
        watch.close()

    @pytest.fixture
    def watching(self, store: Store) -> Iterator[Callable[[], Watch]]:
        """Watches "shop"; closed after the test."""
        watches: list[Watch] = []

        def watch() -> Watch:
            watches.append(store.watch(["shop"]))
            return watches[-1]

        yield watch
        for opened in watches:
            opened.close()
