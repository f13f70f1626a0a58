"""Partitions that nobody reads, as the doctor tells of them."""

from __future__ import annotations

from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.stores.memory import MemoryStore
from omdml.streams.topic_extents import Extent, Member
from omdml.workers.configuration.config import KafkaLog
from omdml.workers.doctor.checks.partitions import expiring, partitions
from omdml.workers.doctor.findings import Level
from omdml.workers.operate.topics import survey
from tests.support.learning.store_samples import checkpoint

PARTITIONS = [Partition("topic", number) for number in range(8)]
NOW = 1_800_000_000.0


def findings(placement, ends, owners, partitioner="murmur2", learning=True, since=None):
    """Levels and texts about partitions that end at ``ends``, read up to offset 10, owned by ``owners``."""
    store = MemoryStore()
    if placement:
        store.place("topic", None, placement)
    extents = [Extent(partition, 0, end, None) for partition, end in zip(PARTITIONS, ends, strict=False)]
    for partition in PARTITIONS[: len(ends)]:
        store.move_mark(partition, None, 10 if placement and partition.number < placement.count else 0)
    workers = [Member(name, "host", owned) for name, owned in owners.items()]
    lines = survey(lambda: extents, store, lambda: workers)
    answer = partitions(lines, placement, partitioner, learning, since or {}, NOW)
    return [(Level.OK, answer)] if isinstance(answer, str) else [tuple(remark) for remark in answer]


def test_partitions_that_are_read_are_well():
    placement = Placement.first("murmur2", 2)
    ((level, text),) = findings(placement, [10, 12], {"a": [0], "b": [1]})
    assert level is Level.OK
    assert text == "2 partitions, 2 events to be learned, by a at host, b at host"


def test_no_worker_is_named_for_added_partitions_that_nobody_reads():
    store, placement = MemoryStore(), Placement.first("murmur2", 2)
    store.place("topic", None, placement)
    extents = [Extent(partition, 0, 10, None) for partition in PARTITIONS[:4]]
    lines = survey(lambda: extents, store, lambda: [Member("a", "host", [0, 1, 2, 3])])
    assert [line.worker for line in lines] == ["a at host", "a at host", "", ""]


def test_a_partition_that_no_worker_owns_is_an_error_if_events_wait_there():
    placement = Placement.first("murmur2", 3)
    ((level, text),) = findings(placement, [10, 15, 10], {"a": [0, 2]})
    assert level is Level.ERROR
    assert "none owns partition 1; 5 events wait there" in text
    ((level, text),) = findings(placement, [10, 10, 10], {"a": [0, 2]})
    assert level is Level.WARNING
    assert "run this again" in text


def test_events_that_the_log_lost_do_not_wait_for_a_worker():
    store, placement = MemoryStore(), Placement.first("murmur2", 1)
    store.place("topic", None, placement)
    store.move_mark(PARTITIONS[0], None, 10)
    lines = survey(lambda: [Extent(PARTITIONS[0], 20, 23, 10)], store, lambda: [Member("a", "host", [0])])
    ((level, text),) = partitions(lines, placement, "murmur2", True, {}, NOW)
    assert level is Level.ERROR
    assert "offsets 10 to 19 are gone from the log, before anybody learned them, and no worker goes on here" in text
    assert "go on without them: omdml worker --accept-gap; 3 events wait there" in text
    assert [line.lag for line in lines] == [3]


def test_deleted_events_that_were_learned_are_no_gap():
    store = MemoryStore()
    store.place("topic", None, Placement.first("murmur2", 1))
    store.move_mark(PARTITIONS[0], None, 20)
    (line,) = survey(lambda: [Extent(PARTITIONS[0], 20, 23, 10)], store, lambda: [Member("a", "host", [0])])
    assert (line.wrong, line.lag) == ("", 3)


def test_a_topic_that_was_created_again_is_no_lost_store():
    store, old = MemoryStore(), Partition("before", 0)
    store.place("before", None, Placement.first("murmur2", 1))
    store.save(checkpoint(10, home=old), store.claim("shop").epoch)
    # A worker that did not notice yet has committed its old position.
    (line,) = survey(lambda: [Extent(PARTITIONS[0], 0, 2, 10)], store, list)
    assert "deleted and created again" in line.wrong
    assert "omdml worker --accept-gap" in line.wrong
    assert "restore the store" not in line.wrong


def test_events_learned_while_the_doctor_looks_are_not_taken_for_a_cut():
    store, looks = MemoryStore(), iter([10, 13])
    store.place("topic", None, Placement.first("murmur2", 1))
    store.move_mark(PARTITIONS[0], None, 12)
    (line,) = survey(lambda: [Extent(PARTITIONS[0], 0, next(looks), 10)], store, lambda: [Member("a", "host", [0])])
    assert (line.wrong, line.lag) == ("", 1)


def test_events_that_will_be_deleted_before_they_are_learned_are_an_error():
    store, placement, log = MemoryStore(), Placement.first("murmur2", 2), KafkaLog(servers="kafka:9092", topic="clicks")
    store.place("topic", None, placement)
    lines = survey(lambda: [Extent(partition, 0, 5, 0) for partition in PARTITIONS[:2]], store, list)
    ((level, text),) = expiring(lines, {0: NOW - 40_000, 1: NOW - 50_000}, 86_400.0, log, NOW)
    assert level is Level.ERROR
    assert text.startswith("partition 1: the oldest event to be learned is of 2027-01-14 18:06:40 UTC (13 h ago)")
    assert "deletes events after 1 day" in text
    assert "--bootstrap-server kafka:9092 --alter --entity-type topics --entity-name clicks" in text
    assert expiring(lines, {0: NOW - 40_000}, 86_400.0, log, NOW) == []
    assert expiring(lines, {0: NOW - 4e9}, None, log, NOW) == []


def test_without_any_worker_what_waits_is_an_error():
    ((level, text),) = findings(Placement.first("murmur2", 2), [15, 15], {}, learning=False)
    assert level is Level.ERROR
    assert text.startswith("partitions 0, 1: no worker is running")
    assert "start one; 10 events wait there" in text


def test_added_partitions_are_reported_with_what_waits_there():
    placement = Placement.first("murmur2", 2)
    ((level, text),) = findings(placement, [10, 10, 0, 0], {"a": [0, 1]})
    assert level is Level.WARNING
    assert "partitions 2, 3 were added after models had been placed on 2" in text
    ((level, text),) = findings(placement, [10, 10, 7, 0], {"a": [0, 1]})
    assert level is Level.ERROR
    assert "7 events wait: stop the senders and the workers, then run omdml topics rehome" in text


def test_if_the_added_partitions_make_no_multiple_the_next_one_is_named():
    ((_, text),) = findings(Placement.first("murmur2", 2), [10, 10, 7], {"a": [0, 1]})
    assert "partition 2 was added after models had been placed on 2" in text
    assert "3 is not a multiple of 2" in text
    assert "omdml topics grow --partitions 4" in text


def test_another_partitioner_than_the_stores_is_an_error():
    ((level, text),) = findings(Placement.first("crc32", 2), [10, 10], {"a": [0, 1]})
    assert level is Level.ERROR
    assert "log.partitioner is 'murmur2', but models of this topic live where 'crc32' puts them" in text
    assert "omdml topics rewind" in text


def test_events_that_wait_for_a_minute_in_an_owned_partition_are_reported():
    placement, owners = Placement.first("murmur2", 2), {"a": [0], "b": [1]}
    ((level, text),) = findings(placement, [10, 15], owners, since={1: NOW - 600})
    assert level is Level.WARNING
    assert text.startswith("partition 1 of b at host: 5 events are not learned or not saved yet, the oldest of")
    assert "(10 min ago)" in text
    assert "read the worker's log" in text
    for waits_s, expected in ((61, Level.WARNING), (59, Level.OK)):
        ((level, _),) = findings(placement, [10, 15], owners, since={1: NOW - waits_s})
        assert level is expected


def test_a_topic_that_no_worker_reads_is_a_warning_even_if_nothing_waits():
    ((level, text),) = findings(Placement.first("murmur2", 2), [10, 10], {}, learning=False)
    assert level is Level.WARNING
    assert text.startswith("no worker is running")
    assert text.endswith("Start one: omdml worker")
