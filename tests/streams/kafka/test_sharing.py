"""How a group shares out a topic of which only some partitions are read."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition

from omdml.streams.kafka.reading.sharing import UNFINISHED, SharedOut


class Topic:
    """A cluster with one topic."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions

    def topics(self) -> set[str]:
        return {"feedback"}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self.partitions))


def member(name: str, owned: list[TopicPartition]) -> SimpleNamespace:
    """A member of the group as its leader sees it."""
    assignor = SharedOut(lambda: None)
    assignor.on_assignment(SimpleNamespace(partitions=lambda: owned, user_data=b""), 1)
    return SimpleNamespace(member_id=name, metadata=assignor.metadata({"feedback"}))


def rebalanced(owners: list[int], members: int, read: int | None) -> list[set[int]]:
    """What each member owns once rebalances end that began with these owners of partitions 0, 1, ... ."""
    owned = [{number for number, owner in enumerate(owners) if owner == index} for index in range(members)]
    for _ in range(5):
        topics = [[TopicPartition("feedback", number) for number in sorted(numbers)] for numbers in owned]
        asking = [member(f"member-{index}", topic) for index, topic in enumerate(topics)]
        shares = SharedOut(lambda: read).assign(Topic(len(owners)), asking)
        before, owned = (
            owned,
            [{partition.partition for partition in shares[entry.member_id].partitions()} for entry in asking],
        )
        if owned == before:
            return owned
    raise AssertionError("the rebalances do not end")


@given(st.data())
def test_each_member_has_its_share_of_what_is_read_whoever_owned_what(data: st.DataObject) -> None:
    members = data.draw(st.integers(1, 5), label="members")
    # The owner number `members` means that nobody owns it.
    owners = data.draw(st.lists(st.integers(0, members), min_size=1, max_size=12), label="owners")
    read = data.draw(st.none() | st.integers(1, len(owners)), label="read")
    shares = rebalanced(owners, members, read)
    assert sorted(number for share in shares for number in share) == list(range(read or len(owners)))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def assigned(owners: list[list[int]], read: int | None) -> tuple[set[int], set[bytes]]:
    """The partitions that have an owner after one round, and the data that members get with them."""
    asking = [
        member(f"member-{index}", [TopicPartition("feedback", number) for number in numbers])
        for index, numbers in enumerate(owners)
    ]
    shares = SharedOut(lambda: read).assign(Topic(4), asking).values()
    return {tp.partition for share in shares for tp in share.partitions()}, {share.user_data for share in shares}


def test_a_round_says_that_it_is_unfinished_if_partitions_must_move() -> None:
    assert assigned([[0, 1, 2, 3], []], None) == ({0, 1}, {UNFINISHED})


def test_a_round_that_shares_out_all_that_is_read_is_finished() -> None:
    assert assigned([[0, 1], []], None) == ({0, 1, 2, 3}, {b""})
    assert assigned([[0], [1]], 2) == ({0, 1}, {b""})


def test_what_is_read_stays_where_it_is_if_that_is_even() -> None:
    assert rebalanced([0, 1, 1, 0], members=2, read=2) == [{0}, {1}]
