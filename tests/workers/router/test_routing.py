"""What becomes of an event on its way from senders that cannot key."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from omdml.errors import FeedbackError
from omdml.feedback import MAX_EVENT_BYTES, MESSAGEPACK, Triplet, decode, encode
from omdml.streams.kafka.routing.router import Targets, copy_of
from omdml.streams.letters import Letter
from omdml.streams.protocols.log import Partition, Record
from omdml.workers.router.metrics import RouterMetrics
from omdml.workers.router.model_key import key_of

CLICKS = Partition("clicks-id", 3)
PACKED = (("content-type", MESSAGEPACK.encode()),)
TARGETS = Targets("feedback", "feedback.letters", 1000, 1000)
TRIPLET = Triplet(model="shop", query="a", relevant="b", irrelevant="c")


def record(value, headers=(), key=None):
    return Record(CLICKS, 7, value, key, 12.5, headers)


@pytest.mark.parametrize(
    ("value", "headers", "key"),
    [
        (encode(TRIPLET), (), b"shop"),
        (encode(TRIPLET, MESSAGEPACK), PACKED, b"shop"),
        (encode(TRIPLET, MESSAGEPACK), (), None),
        ('{"model":"Schöße"}'.encode(), (), "Schöße".encode()),
        (b'{"model":"shop","type":"nothing a worker knows"}', (), b"shop"),
        (b'{"model":"a","model":"b"}', (), b"b"),
        (b'{"model":""}', (), None),
        (b'{"model":7}', (), None),
        (b'{"model":"\\ud800"}', (), None),
        (json.dumps({"model": "m" * 201}).encode(), (), None),
        (b'{"mod', (), None),
        (b"[" * 100_000, (), None),
        (b"", (), None),
        (b'{"model":"shop"}' + b" " * MAX_EVENT_BYTES, (), None),
    ],
)
def test_an_event_is_keyed_by_its_model_if_that_can_be_read(value, headers, key):
    assert key_of(record(value, headers)) == key


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.fixed_dictionaries(
    {"type": st.just("triplet"), "model": st.text(min_size=1, max_size=60), "query": st.text(min_size=1, max_size=5),
     "relevant": st.text(min_size=1, max_size=5), "irrelevant": st.text(min_size=1, max_size=5)},
    optional={"at": st.floats(0, 1e10), "more": JSON_VALUES, "Model": st.text(max_size=5)},
)  # fmt: skip


@given(EVENTS, st.booleans(), st.randoms())
def test_the_key_is_the_model_that_a_worker_decodes(event, packed, shuffle):
    fields = list(event.items())
    shuffle.shuffle(fields)
    event = dict(fields)
    value = msgspec.msgpack.encode(event) if packed else json.dumps(event).encode()
    sent = record(value, PACKED if packed else ())
    try:
        model = decode(value, MESSAGEPACK if packed else "application/json").model
    except FeedbackError:
        return
    assert key_of(sent) in (model.encode(), None)
    # Only a name that no store could keep has no key.
    assert key_of(sent) is not None or len(json.dumps(model)) > 60


def test_a_copy_carries_the_bytes_and_headers_and_no_key_but_the_model():
    headers = (("content-type", b"application/json"), ("trace", b"\xff"))
    sent = record(encode(TRIPLET), headers, key=b"a sender's own")
    assert copy_of(sent, b"shop", TARGETS) == ("keyed", "feedback", b"shop", sent.value, headers)
    assert copy_of(sent, None, TARGETS) == ("keyless", "feedback", None, sent.value, headers)


def test_an_event_that_the_topic_refuses_is_a_letter_with_its_position():
    sent = record(b"x" * 900)
    fate, topic, key, value, headers = copy_of(sent, b"shop", TARGETS)
    assert (fate, topic, key, headers) == ("letter", "feedback.letters", b"shop", ())
    letter = Letter.decode(value)
    assert (letter.position, letter.reason) == ((CLICKS, 7), "oversize")
    assert "takes messages of 1000" in letter.error
    assert copy_of(record(b"x" * 860), b"shop", TARGETS).fate == "keyed"


def test_metrics_tell_of_owned_partitions_only():
    registry = CollectorRegistry()
    metrics = RouterMetrics(registry)
    metrics.behind({CLICKS: (5, 9), Partition("clicks-id", 1): (4, 4)})
    metrics.behind({CLICKS: (9, 9)})
    metrics.routed({"keyed": 3, "letter": 1}, 0.01)

    def value(name, **labels):
        return registry.get_sample_value(name, labels)

    assert (value("omdml_route_lag_offsets", partition="3"), value("omdml_route_lag_offsets", partition="1")) == (
        0,
        None,
    )
    assert value("omdml_route_events_total", fate="keyed") == 3
    assert value("omdml_route_transactions_total", outcome="committed") == 1
