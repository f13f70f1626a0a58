"""What every store promises of marks, placements, its secret and its run. Runs over the stores of conftest.py."""

import threading

import pytest

from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Store, Written
from omdml.streams.stores.folder.store import DirectoryStore
from tests.support.learning.store_samples import checkpoint, published


class TestMarksOfAnyStore:
    """The contract. A module that runs it brings fixtures ``store`` and ``other``."""

    def test_the_secret_is_32_random_bytes_that_never_change(self, store: Store) -> None:
        secret = store.secret()
        assert (type(secret), len(secret)) == (bytes, 32)
        assert len(set(secret)) > 8
        store.claim("shop")
        store.delete("shop")
        assert store.secret() == secret == store.kept_secret()

    def test_all_who_ask_for_the_secret_at_once_are_given_the_same(self, store: Store) -> None:
        answers: list[bytes] = []
        threads = [threading.Thread(target=lambda: answers.append(store.secret())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 8
        assert set(answers) == {store.secret()}

    def test_marks_are_absent_until_set(self, store: Store) -> None:
        first, second, odd = Partition("t", 0), Partition("t", 1), Partition("a/b c", 10)
        assert store.marks([first, second]) == {}
        assert store.move_mark(first, None, 10)
        assert store.move_mark(odd, None, 1 << 50)
        assert store.move_mark(first, 10, 12)
        assert store.marks([first, second, odd]) == {first: 12, odd: 1 << 50}
        assert store.marks([]) == {}

    def test_a_replaced_checkpoint_takes_the_mark_back_and_is_counted(self, store: Store) -> None:
        epoch, home = store.claim("shop").epoch, Partition(*checkpoint().home)
        assert store.save(checkpoint(40), epoch) is Written.STORED
        store.move_mark(home, None, 10)
        before = store.marks([home])
        assert store.replace(checkpoint(20), "another", 4) is Written.FENCED
        assert (store.marks([home]), store.marks([home]).replacements) == ({home: 10}, before.replacements)
        for reread, mark in ((4, 4), (7, 4), (7, 4)):
            assert store.replace(checkpoint(20 + reread), epoch, reread) in (Written.STORED, Written.ALREADY)
            after = store.marks([home])
            assert (after, after.run) == ({home: mark}, before.run)
            assert after.replacements > before.replacements
            before = after

    def test_no_mark_moves_if_its_owner_does_not_know_of_a_replacement(self, store: Store) -> None:
        epoch, home = store.claim("shop").epoch, Partition(*checkpoint().home)
        replacements = store.marks([home]).replacements
        assert store.move_mark(home, None, 10, replacements)
        store.replace(checkpoint(20), epoch, 20)
        assert not store.move_mark(home, 10, 30, replacements)
        assert store.marks([home]) == {home: 10}
        assert store.move_mark(home, 10, 30, store.marks([home]).replacements)

    @pytest.mark.parametrize("mark", [None, 10])
    def test_an_owner_moves_no_mark_that_was_set_from_outside_to_what_it_was(
        self, store: Store, mark: int | None
    ) -> None:
        home = Partition("t", 0)
        replacements = store.marks([home]).replacements
        if mark is not None:
            assert store.move_mark(home, None, mark, replacements)
        assert store.move_mark(home, mark, 10)
        assert not store.move_mark(home, 10, 30, replacements)
        assert store.marks([home]) == {home: 10}
        assert store.move_mark(home, 10, 30, store.marks([home]).replacements)

    def test_a_placement_is_recorded_once_and_changed_only_from_what_it_was(self, store: Store) -> None:
        first, grown = Placement.first("crc32", 2), Placement.first("crc32", 2).grown(4, {0: 7, 1: 9})
        assert store.placement("topic/id") is None
        assert not store.place("topic/id", grown, first)
        assert store.place("topic/id", None, first)
        assert store.place("topic/id", None, first), "a retry"
        assert not store.place("topic/id", None, grown)
        assert store.placement("topic/id") == first
        assert store.place("topic/id", first, grown)
        assert not store.place("topic/id", first, Placement.first("murmur2", 8))
        assert (store.placement("topic/id"), store.placement("another")) == (grown, None)

    def test_the_group_that_reads_a_log_is_the_one_recorded_last(self, store: Store) -> None:
        assert store.group("topic/id") == ""
        for group in ("shop", "shop.täglich/2"):
            store.note_group("topic/id", group)
            assert store.group("topic/id") == group
        assert store.group("another") == ""

    def test_of_many_who_record_a_placement_at_once_exactly_one_does(self, store: Store) -> None:
        recorded: list[int] = []

        def place(count: int) -> None:
            if store.place("topic", None, Placement.first("murmur2", count)):
                recorded.append(count)

        threads = [threading.Thread(target=place, args=(count,)) for count in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        placement = store.placement("topic")
        assert placement is not None
        assert recorded == [placement.count]

    def test_a_mark_that_is_not_as_its_owner_left_it_is_not_moved(self, store: Store) -> None:
        partition = Partition("t", 0)
        assert not store.move_mark(partition, 5, 10)
        assert store.marks([partition]) == {}
        assert store.move_mark(partition, None, 10)
        assert store.move_mark(partition, None, 10), "a retry"
        assert not store.move_mark(partition, None, 12)
        assert store.move_mark(partition, 10, 4)
        assert store.marks([partition]) == {partition: 4}

    def test_of_two_stores_that_move_a_mark_at_once_one_wins(self, store: Store, other: Store) -> None:
        if isinstance(store, DirectoryStore):
            pytest.skip("in a folder a move is a look and a write, without a lock: only its owner may move a mark")
        partition = Partition("t", 0)
        replacements = store.marks([]).replacements
        store.move_mark(partition, None, 0, replacements)
        moves: list[tuple[int, int]] = []

        def move(store: Store, step: int) -> None:
            for _ in range(30):
                before = store.marks([partition])[partition]
                if store.move_mark(partition, before, before + step, replacements):
                    moves.append((before, before + step))

        # The steps differ, so that neither store moves a mark to where the other one does: that would count as a retry.
        threads = [threading.Thread(target=move, args=pair) for pair in ((store, 1), (other, 1000))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Each move begins where the one before it ended, so no two of them begin at the same mark.
        begins, ends = zip(*sorted(moves), strict=True)
        assert begins == (0, *ends[:-1])
        assert store.marks([partition]) == other.marks([partition]) == {partition: ends[-1]}

    def test_the_run_is_the_same_for_all_who_look_and_however_often(self, store: Store, other: Store) -> None:
        store.claim("shop")
        run = store.marks([]).run
        assert run
        published(store, 1, 2)
        store.move_mark(Partition("t", 0), None, 10)
        assert store.marks([Partition("t", 0)]).run == other.marks([]).run == run
