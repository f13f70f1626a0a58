"""Where a node sends the events that are posted to it."""

from __future__ import annotations

import json

from prometheus_client import CollectorRegistry

from omdml.streams.memory_log import MemoryLog, MemorySink
from omdml.workers.events.decoding import JSON
from omdml.workers.events.unread_fields import UnreadFields
from omdml.workers.node.metrics import NodeMetrics
from omdml.workers.node.writing.inbox import Inbox
from omdml.workers.telemetry.registry import ModelLabels

EVENT = {"type": "triplet", "query": "a", "relevant": "b", "irrelevant": "c"}


def keys(events):
    """The keys under which these events lie in the log."""
    log = MemoryLog(4)
    metrics = NodeMetrics(CollectorRegistry(), ModelLabels())
    inbox = Inbox(MemorySink(log), lambda event: None, metrics, {"hot"})
    inbox.start()
    inbox.put([inbox.check(json.dumps(event).encode(), JSON, UnreadFields()) for event in events]).result(30)
    inbox.close()
    records = [record for partition in log.partitions for record in log.read(partition, 0, 100)]
    return sorted((record.key or b"").decode() for record in records)


def test_events_go_to_the_home_of_their_model():
    assert keys([{**EVENT, "model": "shop", "id": "1"}, {**EVENT, "model": "shop"}]) == ["shop", "shop"]


def test_events_of_a_model_in_parts_are_spread_and_repeats_stay_together():
    with_id = {**EVENT, "model": "hot", "id": "1"}
    # An event without a key is spread. The same event is sent twice here.
    assert keys([with_id, {**EVENT, "model": "hot"}, with_id]) == ["", "1", "1"]
