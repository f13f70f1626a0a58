"""The memory log's partitions, rebalances and retention, which stand in for Kafka's."""

import threading
from collections.abc import Mapping

import pytest

from omdml.errors import GapError, SourceError
from omdml.streams.memory_log import MemoryLog, MemorySource
from omdml.streams.protocols.log import CommitResult, Partition
from tests.support.servers.listeners import Recorder


def joined(log: MemoryLog, group: str = "workers") -> tuple[MemorySource, Recorder]:
    source, listener = MemorySource(log, group), Recorder()
    source.subscribe(listener)
    return source, listener


def settle(*sources: MemorySource) -> None:
    """Let every member notice what the others did."""
    for _ in range(3):
        for source in sources:
            source.poll(0, 0)


def test_a_key_always_goes_to_the_same_partition_and_none_goes_round() -> None:
    log = MemoryLog(4)
    assert len({log.send(b"", key="shop").partition for _ in range(8)}) == 1
    assert {log.send(b"").partition for _ in range(4)} == set(log.partitions)
    assert len({log.send(b"", key=f"model {n}").partition for n in range(50)}) == 4


def test_a_second_member_takes_over_half_of_the_partitions() -> None:
    log = MemoryLog(4)
    first, listener = joined(log)
    settle(first)
    assert set(first.progress()) == set(log.partitions)
    second, _ = joined(log)
    settle(second, first)
    assert [event for event, _ in listener.events] == ["assigned", "revoked"]
    assert len(first.progress()) == len(second.progress()) == 2
    assert first.progress().keys() | second.progress().keys() == set(log.partitions)


def test_a_partition_is_given_on_only_after_it_was_released() -> None:
    log = MemoryLog(1)
    first, _ = joined(log)
    settle(first)
    second, listener = joined(log)
    settle(second)
    assert listener.events == []
    first.close()
    settle(second)
    assert listener.events == [("assigned", tuple(log.partitions))]


def test_what_was_committed_while_letting_go_is_where_the_next_owner_starts() -> None:
    log = MemoryLog(1)
    for n in range(6):
        log.send(b"%d" % n)

    class Saver(Recorder):
        def revoked(self, partitions: object) -> None:
            assert first.commit({log.partitions[0]: 4}) is CommitResult.RECORDED

    first = MemorySource(log, "workers")
    first.subscribe(Saver())
    assert len(first.poll(5, 0)) == 5
    first.close()
    second, listener = joined(log)
    assert [record.value for record in second.poll(9, 0)] == [b"4", b"5"]
    assert listener.committed == {log.partitions[0]: 4}


def test_an_expelled_member_loses_what_it_had_and_joins_again() -> None:
    log = MemoryLog(2)
    first, listener = joined(log)
    settle(first)
    log.expel(first)
    assert first.commit({log.partitions[0]: 0}) is CommitResult.NOT_OWNED
    second, _ = joined(log)
    settle(second)
    assert set(second.progress()) == set(log.partitions)
    settle(first, second)
    assert [event for event, _ in listener.events][:2] == ["assigned", "lost"]
    assert len(first.progress()) == len(second.progress()) == 1


def test_an_assignment_that_the_listener_refused_is_offered_again() -> None:
    log = MemoryLog(1)
    log.send(b"x")

    class Hesitant(Recorder):
        def assigned(self, committed: Mapping[Partition, int | None]) -> Mapping[Partition, int | None]:
            answer = super().assigned(committed)
            if len(self.events) == 1:
                raise GapError("no")
            return answer

    source = MemorySource(log)
    source.subscribe(Hesitant())
    with pytest.raises(GapError):
        source.poll(1, 0)
    assert [record.value for record in source.poll(1, 0)] == [b"x"]


def test_a_waiting_poll_is_woken_by_an_event() -> None:
    log = MemoryLog(2)
    source, _ = joined(log)
    source.poll(1, 0)
    sender = threading.Timer(0.01, log.send, [b"x"])
    sender.start()
    assert [record.value for record in source.poll(1, 30)] == [b"x"]
    sender.join()


def test_no_partition_starves_behind_another_ones_backlog() -> None:
    log = MemoryLog(2)
    source, _ = joined(log)
    for n in range(100):
        log.send(b"", key="shop" if n < 90 else None)
    numbers = [source.poll(5, 0)[0].partition.number for _ in range(4)]
    assert set(numbers) == {0, 1}


def test_events_that_retention_removed_are_a_gap() -> None:
    log = MemoryLog(1)
    for n in range(5):
        log.send(b"%d" % n)
    source, _ = joined(log)
    source.poll(1, 0)
    log.trim(log.partitions[0], 3)
    with pytest.raises(GapError, match="the position is 1, but it holds 3 to 5"):
        source.poll(1, 0)
    late, _ = joined(log, "late")
    assert [record.value for record in late.poll(9, 0)] == [b"3", b"4"]
    log.trim(log.partitions[0], 99)
    assert log.start(log.partitions[0]) == log.end(log.partitions[0]) == 5


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(SourceError, match="at least 1"):
        MemoryLog(0)
    log = MemoryLog(1)
    source, _ = joined(log)
    with pytest.raises(SourceError, match="cannot seek"):
        source.seek(log.partitions[0], 0)
