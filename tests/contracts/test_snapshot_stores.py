"""What every store promises of snapshots: what is live, its history, who hears of it. Runs over the stores of
conftest.py."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from omdml.errors import StoreError, StoreLost
from omdml.streams.placement import Assumed, Placement
from omdml.streams.protocols.store import Store, Watch, Why, Written
from tests.support.learning.store_samples import checkpoint, history_fields, live, published, snapshot
from tests.support.waiting import until


class TestSnapshotsOfAnyStore:
    """The contract.

    A module that runs it brings ``store``, which keeps 12 snapshots, ``other``, and ``outage``. This is a context in
    which the store is out of reach.
    """

    def test_many_are_published_at_once_each_answered_for_itself(self, store: Store) -> None:
        names = ["shop", "gone", "fenced", "held"]
        epochs = {name: store.claim(name).epoch for name in names}
        store.delete("gone")
        store.claim("fenced")
        events = [(snapshot(1, model=name), epochs[name], "worse" if name == "held" else "") for name in names]
        outcomes = store.publish_all(events)
        assert [type(outcome) for outcome in outcomes] == [Written, StoreLost, Written, Written]
        assert [outcomes[0], *outcomes[2:]] == [Written.STORED, Written.FENCED, Written.STORED]
        assert [pointer and pointer.version for pointer in store.current_all(names)] == [1, None, None, None]
        assert store.publish_all(events[:1]) == [Written.ALREADY]

    def test_what_was_learned_under_an_earlier_placement_does_not_go_live(self, store: Store) -> None:
        first = Placement.first("murmur2", 4)
        grown, epoch = first.grown(8, {0: 10}), store.claim("shop").epoch
        # A store that records no placement refuses nothing.
        assert store.publish(snapshot(1), epoch, assumed=Assumed("log", first)) is Written.STORED
        assert store.place("log", None, first)
        assert store.publish_all([(snapshot(2), epoch, "")], Assumed("log", first)) == [Written.STORED]
        assert store.place("log", first, grown)
        assert store.publish(snapshot(3), epoch, assumed=Assumed("log", first)) is Written.MOVED
        assert store.publish(snapshot(3), epoch, "worse", Assumed("log", first)) is Written.MOVED
        assert store.publish_all([(snapshot(3), epoch, "")], Assumed("log", first)) == [Written.MOVED]
        assert (live(store).version, len(store.history("shop"))) == (2, 2)
        assert store.publish_all([(snapshot(3), epoch, "")], Assumed("log", grown)) == [Written.STORED]
        # The commands of operators assume no placement, and are not refused for that.
        assert store.publish(snapshot(4), epoch) is Written.STORED

    def test_nothing_is_live_before_the_first_publication(self, store: Store) -> None:
        store.claim("shop")
        assert (store.current("shop"), store.load("shop"), store.load("shop", 1)) == (None, None, None)
        assert store.history("shop") == []
        with pytest.raises(StoreError, match="Versions kept: none"):
            store.move("shop", None, pin=True)

    def test_what_is_published_is_live(self, store: Store) -> None:
        epoch = published(store, 0, 4)
        loaded = store.load("shop")
        assert loaded
        pointer, result = loaded
        assert pointer == live(store)
        assert (pointer.serial, pointer.version, pointer.epoch, pointer.pinned) == (2, 4, epoch, False)
        assert pointer.digest == result.digest == snapshot(4).digest
        assert pointer.store_id
        assert result.to_bytes() == snapshot(4).to_bytes()
        assert history_fields(store, "what", "version", "serial") == [("published", 0, 1), ("published", 4, 2)]

    def test_a_publication_that_is_sent_again_changes_nothing(self, store: Store) -> None:
        epoch = published(store, 4)
        assert store.publish(snapshot(4), epoch) is Written.ALREADY
        assert live(store).serial == 1
        assert len(store.history("shop")) == 1

    def test_a_publication_that_arrives_late_changes_nothing(self, store: Store) -> None:
        epoch = published(store, 4, 6)
        assert store.publish(snapshot(4), epoch) is Written.FENCED
        assert (live(store).version, live(store).serial, len(store.history("shop"))) == (6, 2, 2)

    def test_a_successor_may_begin_below_what_its_predecessor_published(self, store: Store) -> None:
        published(store, 4, 6)
        second = published(store, 5, 6)
        assert store.publish(snapshot(6), second) is Written.ALREADY
        assert history_fields(store, "version", "serial") == [(4, 1), (6, 2), (5, 3), (6, 4)]

    def test_a_successor_with_the_same_bytes_does_not_move_the_pointer(self, store: Store) -> None:
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

    def test_the_history_tells_who_moved_the_pointer_and_why(self, store: Store) -> None:
        published(store, 1, 2)
        store.move("shop", 1, pin=True, why=Why("alice", "red: «first»"))
        line = store.history("shop")[-1]
        assert (line["what"], line["actor"], line["reason"]) == ("rolled back", "alice", "red: «first»")

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
        assert history_fields(store, "what", "version", "serial", "pinned", "reason")[3:] == [
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
        assert store.publish(snapshot(1), epoch, withheld="mistakes rose") is Written.STORED
        assert store.current("shop") is None
        assert store.load("shop") is None
        store.publish(snapshot(2), epoch)
        assert store.publish(snapshot(3), epoch, withheld="mistakes rose") is Written.STORED
        assert store.publish(snapshot(3), epoch, withheld="mistakes rose") is Written.ALREADY
        assert live(store).version == 2
        assert history_fields(store, "what", "version", "serial", "reason") == [
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
        with pytest.raises(StoreError, match=r"version 7 .* Versions kept: 1, 2"):
            store.move("shop", 7, pin=True)
        assert store.load("shop", 7) is None

    def test_old_snapshots_go_but_neither_the_last_ones_nor_what_is_live(self, store: Store) -> None:
        epoch = published(store, 1, 2)
        store.move("shop", 1, pin=True)
        for version in range(3, 50):
            assert store.publish(snapshot(version), epoch) is Written.STORED
        versions = {version for version in range(50) if store.load("shop", version)}
        assert {1, *range(38, 50)} <= versions
        assert len(versions) < 30
        assert {version for (version,) in history_fields(store, "version")} == versions
        assert live(store).version == 1
        assert store.move("shop", None, pin=False).version == 49

    def test_a_note_is_recorded_with_the_live_version_and_moves_nothing(self, store: Store) -> None:
        epoch = store.claim("shop").epoch
        assert store.note("shop", epoch, "drift", "mistakes rose") is Written.ALREADY
        assert store.history("shop") == []
        store.publish(snapshot(1), epoch)
        before = store.current("shop")
        assert store.note("shop", epoch, "drift", "mistakes rose") is Written.STORED
        assert store.current("shop") == before
        assert history_fields(store, "what", "version", "serial", "reason") == [
            ("published", 1, 1, ""),
            ("drift", 1, 1, "mistakes rose"),
        ]
        assert store.note("shop", "another", "drift", "") is Written.FENCED
        assert live(store).version == 1
        assert store.move("shop", 1, pin=False).version == 1

    def test_unpinning_leads_to_what_the_pin_kept_back_but_to_nothing_withheld(self, store: Store) -> None:
        epoch = store.claim("shop").epoch
        store.publish(snapshot(1), epoch)
        store.publish(snapshot(2), epoch, withheld="mistakes rose")
        store.move("shop", 1, pin=True)
        assert store.move("shop", None, pin=False).version == 1
        store.move("shop", 1, pin=True)
        store.publish(snapshot(3), epoch)
        assert store.move("shop", None, pin=False).version == 3

    def test_a_number_stands_for_what_went_live_not_what_was_withheld(self, store: Store) -> None:
        # Given what is taken back: the reference goes live under the number of the version that is withheld after it
        epoch = published(store, 1, 2)
        store.publish(snapshot(3, seed=1), epoch)
        store.publish(snapshot(3), epoch, withheld="mistakes rose")
        before = live(store)
        # Then a move to that number keeps what is live, and leads there again, as what is loaded by it does.
        assert store.move("shop", 3, pin=True).digest == before.digest
        store.move("shop", 2, pin=True)
        loaded = store.load("shop", 3)
        assert loaded
        assert loaded[1].digest == before.digest
        assert store.move("shop", 3, pin=True).digest == before.digest

    def test_a_move_to_the_number_of_the_live_version_keeps_it_live(self, store: Store) -> None:
        epoch = published(store, 1, 2)
        before = store.move("shop", 2, pin=True)
        store.publish(snapshot(2, seed=1), epoch)
        assert store.move("shop", 2, pin=True).digest == before.digest
        assert store.move("shop", None, pin=False).digest == snapshot(2, seed=1).digest

    def test_the_owner_of_what_is_live_can_drop_everything_earlier(self, store: Store) -> None:
        first = published(store, 1, 2, 3)
        for offset in (1, 2, 3):
            store.save(checkpoint(offset), first)
        store.move("shop", 2, pin=True)
        epoch = store.claim("shop").epoch
        assert store.publish(snapshot(1, seed=9), epoch) is Written.STORED
        assert store.save(checkpoint(1, state=b"new"), epoch, back=True) is Written.STORED
        # It is not live: a version is pinned.
        assert store.drop_earlier(snapshot(1, seed=9), epoch) is Written.FENCED
        store.move("shop", None, pin=False)
        assert store.drop_earlier(snapshot(1, seed=9), first) is Written.FENCED
        assert history_fields(store, "version")[:3] == [(1,), (2,), (3,)]
        serial = live(store).serial
        for _ in range(2):
            assert store.drop_earlier(snapshot(1, seed=9), epoch) is Written.STORED
            assert [store.load("shop", version) for version in (2, 3)] == [None, None]
            assert history_fields(store, "what", "version") == [("held", 1), ("rolled back", 1)]
            assert live(store).serial == serial
            loaded = store.load("shop")
            assert loaded
            assert loaded[1].digest == snapshot(1, seed=9).digest
        claimed = store.claim("shop")
        assert claimed.checkpoint == checkpoint(1, state=b"new")
        assert not claimed.fell_back
        assert store.publish(snapshot(2), claimed.epoch) is Written.STORED
        assert live(store).serial == serial + 1

    def test_the_past_of_a_deleted_model_cannot_be_dropped(self, store: Store) -> None:
        epoch = published(store, 1)
        store.delete("shop")
        with pytest.raises(StoreLost):
            store.drop_earlier(snapshot(1), epoch)

    def test_two_who_publish_at_once_both_get_into_the_history(self, store: Store, other: Store) -> None:
        epoch = store.claim("shop").epoch
        operator = threading.Thread(target=lambda: [other.move("shop", None, pin=False) for _ in range(10)])
        store.publish(snapshot(0), epoch)
        operator.start()
        for version in range(1, 11):
            store.publish(snapshot(version), epoch)
        operator.join()
        serials = [serial for (serial,) in history_fields(store, "serial")]
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

    def test_a_watch_hears_what_another_one_published(self, store: Store, other: Store) -> None:
        epoch = published(store, 1)
        watch = store.watch(["shop"])
        other.publish(snapshot(2), epoch)
        assert watch.wait(10) == {"shop"}
        watch.close()

    def test_a_watch_tells_of_what_the_history_says_though_no_pointer_moved(self, store: Store) -> None:
        epoch = published(store, 1)
        watch = store.watch(["shop"])
        store.publish(snapshot(2), epoch, "its norms grew")
        assert watch.wait(10) == {"shop"}
        store.note("shop", epoch, "drift", "mistakes rose")
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

    def test_a_watch_tells_that_a_model_was_deleted(self, store: Store, other: Store) -> None:
        published(store, 1)
        published(store, 1, model="faces")
        watch = store.watch(["shop"])
        other.delete("faces")
        assert watch.wait(0.05) == set()
        other.delete("shop")
        assert watch.wait(10) == {"shop"}
        published(store, 1)
        assert watch.wait(10) == {"shop"}
        watch.close()

    def test_watches_are_silent_while_the_store_is_out_of_reach_and_then_go_on(
        self, store: Store, watching: Callable[[], Watch], outage: Callable[[], AbstractContextManager[None]]
    ) -> None:
        epoch = published(store, 1)
        before = watching()
        with outage():
            during = watching()
            assert (before.wait(0.05), during.wait(0.05)) == (set(), set())
            with pytest.raises(StoreError):
                store.current("shop")
        # What moved before a watch could look is not known, so everything may have.
        until(lambda: during.wait(0.05) == {"shop"})
        assert store.publish(snapshot(2), epoch) is Written.STORED
        for watch in (before, during):
            until(lambda watch=watch: watch.wait(0.05) == {"shop"})

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
