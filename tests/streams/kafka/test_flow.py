"""When a partition counts as one that the client stopped fetching, and how those that stopped are reported."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from kafka import TopicPartition
from kafka.errors import FencedInstanceIdError, KafkaTimeoutError

from omdml.errors import GapError, SourceRefused
from omdml.streams.kafka.reading import client_health, gap
from omdml.streams.kafka.reading.client_health import STUCK_BUSY_LOOKS, STUCK_LOOKS, Absence, Failures, Flow
from omdml.streams.kafka.reading.gap import Gaps
from omdml.streams.protocols.log import Partition

STUCK, FLOWING = TopicPartition("t", 0), TopicPartition("t", 1)


def looks_until_told(flow, progress, delivered=(), waiting=False):
    """How many looks it takes, of at most a thousand."""
    for look in range(1, 1000):
        flow.delivered(delivered)
        if message := flow.look(progress(look), waiting):
            assert message == [STUCK]
            return look
    return None


def test_a_stuck_partition_is_reported_soon_if_nothing_else_comes():
    looks = looks_until_told(Flow(), lambda look: {STUCK: (100, 200 + look)})
    assert STUCK_LOOKS < looks <= STUCK_LOOKS + 2


def test_a_stuck_partition_is_reported_later_if_others_are_delivered():
    looks = looks_until_told(Flow(), lambda look: {STUCK: (100, 200), FLOWING: (look, 10_000)}, [FLOWING])
    assert STUCK_BUSY_LOOKS < looks <= STUCK_BUSY_LOOKS + 2


def test_a_stuck_partition_is_reported_later_if_the_client_waits():
    looks = looks_until_told(Flow(), lambda look: {STUCK: (100, 200 + look)}, waiting=True)
    assert STUCK_BUSY_LOOKS < looks <= STUCK_BUSY_LOOKS + 2


def test_a_partition_that_moves_now_and_then_or_is_at_its_end_is_not_stuck():
    assert looks_until_told(Flow(), lambda look: {STUCK: (look // 30, 10_000)}, [FLOWING]) is None
    assert looks_until_told(Flow(), lambda look: {STUCK: (100, 100)}) is None


def test_a_partition_whose_records_are_sought_again_and_again_is_not_stuck():
    assert looks_until_told(Flow(), lambda look: {STUCK: (100, 10_000)}, [STUCK]) is None


def test_a_gap_that_cannot_be_described_for_now_is_reported_later():
    described = iter([KafkaTimeoutError("no leader"), None])

    def describe():
        if error := next(described):
            raise error
        return GapError("a gap")

    gaps = Gaps()
    gaps.add(STUCK, describe)
    with pytest.raises(KafkaTimeoutError):
        gaps.raise_next()
    with pytest.raises(GapError):
        gaps.raise_next()
    gaps.raise_next()
    assert gaps.stopped == {STUCK}


def test_a_gap_in_a_partition_that_is_gone_is_not_reported():
    gaps = Gaps()
    gaps.add(STUCK, lambda: GapError("a gap"))
    gaps.forget([STUCK])
    gaps.raise_next()
    assert gaps.stopped == set()


def test_a_gap_can_be_accepted_only_after_it_was_reported():
    gaps = Gaps()
    assert not gaps.accept(STUCK)
    gaps.add(STUCK, lambda: GapError("a gap"))
    assert not gaps.accept(STUCK)
    with pytest.raises(GapError):
        gaps.raise_next()
    assert gaps.accept(STUCK)
    assert gaps.stopped == set()


def test_a_topic_made_again_is_reported_without_positions_that_nobody_knows():
    for position, is_named in ((None, False), (7, True)):
        text = str(gap.created_again("clicks", Partition("new", 0), position, (0, 5), before="old", now="new"))
        assert ("Offset 7 of partition 0 belongs to the old topic" in text) is is_named
        assert "None" not in text
        assert "omdml topics rewind" in text


@pytest.fixture
def clock(monkeypatch):
    """A function that sets the time, in seconds, that a client's health is judged by."""

    def set_to(second):
        monkeypatch.setattr(client_health.time, "monotonic", lambda: float(second))

    return set_to


def test_a_client_that_waits_and_delivers_nothing_has_waited_long_once_a_minute(clock):
    flow, warnings = Flow(), []
    # Looks may take longer than a second if nothing is answered.
    for second in range(3, 190, 3):
        clock(second)
        flow.look({}, waiting=True)
        if flow.has_waited_long():
            warnings.append(second)
    assert warnings == [63, 123, 183]


@pytest.mark.parametrize("sign", ["delivered", "answered"])
def test_a_client_that_delivers_or_answers_meanwhile_has_not_waited_long(clock, sign):
    flow = Flow()
    for second in range(1, 200):
        clock(second)
        flow.look({FLOWING: (5, 5)} if sign == "answered" and second % 50 == 0 else {}, waiting=True)
        flow.delivered([FLOWING] if sign == "delivered" and second % 50 == 0 else [])
        assert not flow.has_waited_long()


def test_a_topic_that_is_missing_for_a_moment_only_ends_nobody(monkeypatch):
    monkeypatch.setattr("omdml.streams.kafka.reading.client_health.ABSENT_S", 0.0)
    absence = Absence("kafka:9092", "clicks")
    absence.note(True)
    absence.note(False)
    absence.note(True)
    with pytest.raises(SourceRefused, match="topic 'clicks' is missing from Kafka at kafka:9092"):
        absence.note(True)


@pytest.mark.parametrize(
    ("minutes", "ends"),
    [
        ([0, 0.5], True),
        ([0, 2], False),
        # A machine on which joining takes minutes.
        ([0, 3, 6, 9, 12], True),
        # Brokers that are frozen every night, or now and then.
        ([0, 1440, 2880, 4320, 5760], False),
        ([0, 10, 30, 50, 61], False),
    ],
)
def test_a_name_is_taken_back_unless_it_is_lost_again_soon_or_often(monkeypatch, minutes, ends):
    failures = Failures()
    for number, minute in enumerate(minutes, 1):
        monkeypatch.setattr(client_health.time, "monotonic", lambda now=60.0 * minute: now)
        with pytest.raises(SourceRefused) if ends and number == len(minutes) else nullcontext():
            failures.name_taken("group", "one", FencedInstanceIdError())
