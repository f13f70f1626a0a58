"""What every store promises of checkpoints and models. Runs over memory and folders here, over servers in
tests/integration/."""

import threading

import pytest
import structlog

from omdml.errors import CorruptError, StoreLost
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Store, Written
from tests.support.learning.store_samples import ODD_NAMES, Copy, Damage, checkpoint, live, published, snapshot


class TestCheckpointsOfAnyStore:
    """The contract. A module that runs it brings the fixtures of conftest.py from ``store`` to ``copy``."""

    def test_a_new_owner_finds_nothing_then_what_was_saved_last(self, store: Store) -> None:
        epoch, result, fell_back = store.claim("shop")
        assert (result, fell_back) == (None, False)
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

    def test_of_two_stores_that_claim_at_once_only_the_last_owner_may_save(self, store: Store, other: Store) -> None:
        epochs: list[str] = []

        def claim(store: Store) -> None:
            epochs.extend(store.claim("shop").epoch for _ in range(20))

        threads = [threading.Thread(target=claim, args=(each,)) for each in (store, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({epoch.partition("-")[0] for epoch in epochs}) == 40
        *earlier, last = sorted(epochs)
        assert {other.save(checkpoint(1), epoch) for epoch in earlier} == {Written.FENCED}
        assert other.save(checkpoint(1), last) is Written.STORED
        assert store.peek("shop") == checkpoint(1)

    def test_many_are_claimed_and_saved_at_once_each_answered_for_itself(self, store: Store, damage: Damage) -> None:
        epoch = store.claim("shop").epoch
        for offset in (3, 4):
            store.save(checkpoint(offset), epoch)
        damage()
        names = ["new", "shop", *ODD_NAMES, "other"]
        claims = store.claim_all(names)
        assert [claim.checkpoint for claim in claims] == [None, checkpoint(3), *[None] * (len(names) - 2)]
        assert [claim.fell_back for claim in claims] == [name == "shop" for name in names]
        assert store.models() == sorted(names)
        later = store.claim("other").epoch
        saves = [(checkpoint(9, model=name), claim.epoch) for name, claim in zip(names, claims, strict=True)]
        assert store.save_all(saves) == [*[Written.STORED] * (len(names) - 1), Written.FENCED]
        assert store.save_all(saves[:2]) == [Written.ALREADY] * 2
        assert store.save(checkpoint(9, model="other"), later) is Written.STORED
        assert all(position.next == 9 for position in store.positions(names).values())

    def test_a_model_that_cannot_be_claimed_keeps_no_other_from_it(self, store: Store, damage: Damage) -> None:
        epoch = store.claim("shop").epoch
        for offset in (3, 4):
            store.save(checkpoint(offset), epoch)
        damage()
        store.claim("shop")
        damage()
        first, damaged, last = store.claim_all(["one", "shop", "two"])
        assert isinstance(damaged, CorruptError)
        assert (first.checkpoint, last.checkpoint) == (None, None)

    def test_who_claims_a_checkpoint_that_cannot_be_read_may_replace_it(self, store: Store, damage: Damage) -> None:
        epoch = store.claim("shop").epoch
        store.save(checkpoint(3), epoch)
        damage()
        with pytest.raises(CorruptError) as caught:
            store.claim("shop")
        assert store.save(checkpoint(9), epoch) is Written.FENCED
        assert store.replace(checkpoint(2), caught.value.epoch, 2) is Written.STORED
        assert store.claim("shop")[1:] == (checkpoint(2), False)

    def test_a_deleted_model_among_many_that_are_saved_at_once_is_reported_lost(self, store: Store) -> None:
        claims = store.claim_all(["one", "shop", "two"])
        epochs = [claim.epoch for claim in claims]
        store.delete("shop")
        saved = store.save_all(
            [(checkpoint(1, model=name), epoch) for name, epoch in zip(("one", "shop"), epochs, strict=False)]
        )
        assert (saved[0], type(saved[1])) == (Written.STORED, StoreLost)

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

    def test_behind_a_damaged_checkpoint_the_position_is_the_one_before(self, store: Store, damage: Damage) -> None:
        epoch = store.claim("shop").epoch
        for offset in (5, 8):
            store.save(checkpoint(offset), epoch)
        damage()
        epoch = store.claim("shop").epoch
        assert store.positions(["shop"])["shop"].next == 5
        store.save(checkpoint(6), epoch)
        assert store.positions(["shop"])["shop"].next == 6

    def test_a_damaged_checkpoint_never_takes_the_place_of_a_sound_one(self, store: Store, damage: Damage) -> None:
        epoch = store.claim("shop").epoch
        for offset in (5, 8):
            store.save(checkpoint(offset), epoch)
        damage()
        epoch = store.claim("shop").epoch
        store.save(checkpoint(6), epoch)
        damage()
        assert store.claim("shop")[1:] == (checkpoint(5), True)

    def test_a_save_that_is_sent_again_changes_nothing(self, store: Store) -> None:
        epoch = store.claim("shop").epoch
        store.save(checkpoint(5), epoch)
        assert store.save(checkpoint(5), epoch) is Written.ALREADY
        assert store.claim("shop")[1:] == (checkpoint(5), False)

    def test_a_save_that_arrives_late_overwrites_nothing(self, store: Store) -> None:
        epoch = store.claim("shop").epoch
        store.save(checkpoint(5), epoch)
        store.save(checkpoint(8), epoch)
        assert store.save(checkpoint(5), epoch) is Written.FENCED
        assert store.claim("shop").checkpoint == checkpoint(8)

    def test_a_position_goes_back_only_if_its_owner_asks_for_that(self, store: Store) -> None:
        first = store.claim("shop").epoch
        store.save(checkpoint(8), first)
        epoch = store.claim("shop").epoch
        assert store.save(checkpoint(5), first, back=True) is Written.FENCED
        assert store.save(checkpoint(5), epoch, back=True) is Written.STORED
        assert store.save(checkpoint(6), epoch) is Written.STORED
        assert store.claim("shop").checkpoint == checkpoint(6)

    def test_what_was_learned_under_an_earlier_placement_is_not_saved(self, store: Store) -> None:
        topic, _ = checkpoint().home
        first = Placement.first("murmur2", 4)
        grown = first.grown(8, {0: 10})
        epoch = store.claim("shop").epoch
        # A store that records no placement refuses nothing.
        assert store.save(checkpoint(1), epoch, placement=first) is Written.STORED
        assert store.place(topic, None, first)
        assert store.save_all([(checkpoint(2), epoch)], first) == [Written.STORED]
        assert store.place(topic, first, grown)
        assert store.save(checkpoint(3), epoch, placement=first) is Written.MOVED
        assert store.save(checkpoint(1), epoch, back=True, placement=first) is Written.MOVED
        assert store.save_all([(checkpoint(3), epoch)], first) == [Written.MOVED]
        assert store.peek("shop") == checkpoint(2)
        assert store.save_all([(checkpoint(3), epoch)], grown) == [Written.STORED]
        # Who asks for no placement, as the commands of operators do, is not held against it.
        assert store.save(checkpoint(4), epoch) is Written.STORED

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
        assert store.fell_back("shop")

        # If that owner dies before it saves, I expect its successor to hear of it too.
        claim = store.claim("shop")
        assert claim[1:] == (checkpoint(2), True)

        # If its successor saves, behind the damaged one, I expect a sound checkpoint behind the newest again.
        for offset in (2, 3):
            assert store.save(checkpoint(offset, state=b"replayed"), claim.epoch) is Written.STORED
        assert store.claim("shop")[1:] == (checkpoint(3, state=b"replayed"), False)
        assert not store.fell_back("shop")
        damage()
        assert store.claim("shop")[1:] == (checkpoint(2, state=b"replayed"), True)

    def test_an_older_checkpoint_put_in_place_by_hand_is_reported_from_the_last_one(
        self, store: Store, copy: Copy
    ) -> None:
        epoch = store.claim("shop").epoch
        for offset in (1, 2):
            store.save(checkpoint(offset), epoch)
        put_back = copy()
        assert store.claim("shop")[1:] == (checkpoint(2), False)
        epoch = store.claim("shop").epoch
        for offset in (5, 6, 7):
            store.save(checkpoint(offset), epoch)
        assert not store.fell_back("shop")
        put_back()
        for _ in range(2):
            assert store.fell_back("shop")
            claim = store.claim("shop")
            assert claim[1:] == (checkpoint(2), True)
        assert store.save(checkpoint(4), claim.epoch) is Written.STORED
        assert store.claim("shop")[1:] == (checkpoint(4), False)
        assert not any(map(store.fell_back, ("shop", "nobody")))

    def test_a_model_that_went_back_on_purpose_is_where_it_was_saved_last(self, store: Store) -> None:
        epoch = store.claim("shop").epoch
        for offset in (3, 8):
            store.save(checkpoint(offset), epoch)
        store.save(checkpoint(5), epoch, back=True)
        assert store.claim("shop")[1:] == (checkpoint(5), False)

    def test_a_model_of_a_deleted_ones_name_is_saved_like_any_other(self, store: Store) -> None:
        epoch = store.claim("shop").epoch
        for offset in (3, 8):
            store.save(checkpoint(offset), epoch)
        store.delete("shop")
        store.save(checkpoint(1), store.claim("shop").epoch)
        assert store.claim("shop")[1:] == (checkpoint(1), False)

    def test_damage_to_all_checkpoints_stops_with_what_to_do(self, store: Store, damage: Damage) -> None:
        epoch = store.claim("shop").epoch
        store.save(checkpoint(1), epoch)
        store.save(checkpoint(2), epoch)
        damage()
        damage()
        for _ in range(2):
            with pytest.raises(CorruptError, match="omdml replay --model shop --publish --replace"):
                store.claim("shop")

    def test_the_only_checkpoint_being_damaged_is_not_a_fresh_start(self, store: Store, damage: Damage) -> None:
        store.save(checkpoint(1), store.claim("shop").epoch)
        damage()
        with pytest.raises(CorruptError):
            store.claim("shop")

    def test_a_model_whose_checkpoints_are_all_gone_is_not_begun_afresh(
        self, store: Store, other: Store, remove: Damage
    ) -> None:
        epoch = store.claim("shop").epoch
        for offset in (1, 2):
            store.save(checkpoint(offset), epoch)
        remove()
        for each in (store, other):
            assert each.fell_back("shop")
            assert (each.peek("shop"), each.positions(["shop"])) == (None, {})
            with pytest.raises(
                CorruptError, match=r"one was saved.*omdml replay --model shop --publish --replace"
            ) as caught:
                each.claim("shop")
        # Its owner may save a checkpoint of what a replay has learned.
        assert store.save(checkpoint(2), caught.value.epoch) is Written.STORED
        assert store.claim("shop")[1:] == (checkpoint(2), False)
        # A model that was deleted begins again.
        remove()
        store.delete("shop")
        assert other.claim("shop")[1:] == (None, False)

    def test_a_model_that_was_published_and_never_saved_begins_again(self, store: Store) -> None:
        published(store, 1, 2)
        assert store.claim("shop")[1:] == (None, False)

    def test_an_owner_that_the_store_has_forgotten_is_reported(self, store: Store) -> None:
        epoch = store.claim("shop").epoch
        store.delete("shop")
        with pytest.raises(StoreLost, match="shop"):
            store.save(checkpoint(1), epoch)
        with pytest.raises(StoreLost, match="shop"):
            store.publish(snapshot(1), epoch)

    def test_a_look_at_a_checkpoint_leaves_its_owner_able_to_save(self, store: Store) -> None:
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
    def test_a_model_may_have_any_name(self, store: Store, name: str) -> None:
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
