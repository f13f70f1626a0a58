"""Feedback that is posted to a node: taken as a worker would take it, durable, or refused saying why."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from omdml.errors import SourceError
from omdml.feedback import MAX_EVENT_BYTES, MESSAGEPACK, decode, encode
from tests.support.shops import asking, refused, sent
from tests.support.worlds import events


def test_an_accepted_event_is_in_the_log(shop, client):
    event = next(events(1))
    response = client.post("/feedback", content=event)
    assert (response.status_code, response.json()["accepted"]) == (202, 1)
    assert [decode(value) for value in sent(shop)] == [decode(event)]


def test_the_answer_says_since_when_events_may_be_in_the_log(shop, client):
    began = time.time()
    answer = client.post("/feedback", content=next(events(1))).json()
    (record,) = shop.log.read(shop.log.partitions[0], 0, 10)
    assert began - 0.001 <= answer["at"] <= record.timestamp


def test_the_answer_names_fields_that_nothing_reads(shop, client):
    event = json.loads(next(events(1)))
    mistyped, own = {**event, "usr": "ann"}, {**event, "user": "bob", "usr": "bob", "colour": "red"}
    lines = b"\n".join(json.dumps(line).encode() for line in (event, mistyped, own, {**event, "user": "eve"}))
    response = client.post("/feedback", content=lines, headers={"content-type": "application/x-ndjson"})
    unread = "'usr' (2 events; did you mean 'user'?), 'colour' (1 event)"
    answer = response.json()
    assert (response.status_code, answer["accepted"], answer["unread_fields"]) == (202, 4, unread)
    assert [json.loads(value) for value in sent(shop)][1] == mistyped
    packed = client.post("/feedback", content=msgspec.msgpack.encode(own), headers={"content-type": MESSAGEPACK})
    assert {"'usr' (1 event)", "'colour' (1 event)"} == set(packed.json()["unread_fields"].split(", "))


def test_the_answer_says_how_to_name_a_session(client):
    event = json.loads(next(events(1)))
    for more, unread in (
        ({"session": "s-1"}, "'session' (1 event; did you mean 'user'?)"),
        ({"session": "s-1", "user": "ann"}, "'session' (1 event)"),
    ):
        assert client.post("/feedback", json={**event, **more}).json()["unread_fields"] == unread


def test_a_posted_event_that_does_not_fit_is_refused_in_words(client):
    event = json.loads(next(events(1)))
    mistyped = json.dumps(event).replace('"relevant"', '"relevent"')
    for body, message in (
        (json.dumps({**event, "query": 17}), "event 1: field 'query': expected text, got a whole number 17"),
        (mistyped, "event 1: it has no field 'relevant', but 'relevent': did you mean 'relevant'?"),
    ):
        assert refused(client.post("/feedback", content=body), 400, "invalid") == message


def test_any_number_of_fields_of_any_name_gives_a_short_answer(client):
    event = json.loads(next(events(1)))
    many = client.post("/feedback", json={**event, **{f"{number}-{'x' * 1000}": 1 for number in range(500)}})
    assert (many.status_code, len(many.content) < 1000) == (202, True), many.text
    not_text = json.dumps(event).encode()[:-1] + b',"\xff":1}'
    assert client.post("/feedback", content=not_text).json()["accepted"] == 1


def test_events_come_one_a_line_too_and_in_message_pack(shop, client):
    lines = b"\n".join(events(300)) + b"\n\n"
    headers = {"content-type": "application/x-ndjson; charset=utf-8"}
    assert client.post("/feedback", content=lines, headers=headers).json()["accepted"] == 300
    packed = msgspec.msgpack.encode(json.loads(next(events(1))))
    assert client.post("/feedback", content=packed, headers={"content-type": "application/msgpack"}).status_code == 202
    assert sent(shop) == [*events(300), packed]
    (partition,) = shop.log.partitions
    assert shop.log.read(partition, 300, 1)[0].headers == (("content-type", b"application/msgpack"),)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "shpo"}, "unknown_model"),
        ({"query": "nope"}, "unknown_item"),
        ({"query": ""}, "invalid"),
        ({"type": "triplett"}, "invalid"),
        ({"query": "new", "features": {"new": {"shape": [0.0] * 9}}}, "missing_modality"),
        ({"query": "new", "features": {"new": {"shape": [0.0] * 9, "noise": [0.0]}}}, "dimension"),
    ],
)
def test_of_a_batch_with_a_bad_event_nothing_is_taken_and_the_answer_says_which(shop, client, change, reason):
    good = [json.loads(event) for event in events(4)]
    lines = "\n".join(json.dumps(event) for event in [*good[:2], {**good[2], **change}, good[3]])
    response = client.post("/feedback", content=lines, headers={"content-type": "application/x-ndjson"})
    message = refused(response, 400, reason)
    assert message.startswith("event 3: ")
    assert "event: " not in message
    assert response.json()["number"] == 3
    assert [(bad["number"], bad["error"]) for bad in response.json()["errors"]] == [(3, reason)]
    assert sent(shop) == []


def ranking(relevant, irrelevant):
    """A ranking of so many items."""
    names = [f"i{row}" for row in range(1, 1 + relevant + irrelevant)]
    return {"type": "ranking", "query": "i0", "relevant": names[:relevant], "irrelevant": names[relevant:]}


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"type": "pair", "left": "i1", "right": "i2", "similar": True}, "not_accepted"),
        ({"type": "quadruplet", "near": ["i1", "i2"], "far": ["i3", "i4"]}, "not_accepted"),
        ({"type": "set", "query": ["i1"], "relevant": ["s2"], "irrelevant": ["s3"]}, "not_accepted"),
        (ranking(91, 11), "too_many"),
    ],
)
def test_an_event_that_would_be_a_dead_letter_is_refused_by_the_node(shop, client, event, reason):
    refused(client.post("/feedback", json={"model": "shop", **event}), 400, reason)
    assert sent(shop) == []


def test_an_accepted_event_goes_on_as_it_came_however_its_numbers_are_written(shop, client):
    features = {f"n{row}": {"shape": [1] * 9, "noise": [1] * 5} for row in range(14_000)}
    event = {**json.loads(next(events(1))), "query": "n0", "features": features}
    body = json.dumps(event, separators=(",", ":")).encode()
    # Encoding writes 1.0 for 1, which is longer.
    assert len(body) < MAX_EVENT_BYTES < len(encode(decode(body)))
    assert client.post("/feedback", content=body).status_code == 202
    assert sent(shop) == [body]


def test_several_events_sent_as_one_are_refused_with_how_to_send_them(client):
    lines = b"\n".join(events(3))
    for kind in ("application/x-www-form-urlencoded", "application/json"):
        for body in (lines, lines.replace(b"\n", b""), b"[" + lines.replace(b"\n", b",") + b"]"):
            response = client.post("/feedback", content=body, headers={"content-type": kind})
            assert "with Content-Type: application/x-ndjson" in response.json()["message"]
            assert "urlencoded" not in response.json()["message"]
            assert response.status_code == 400
        refusal = client.post("/feedback", content=b'{\n"type": "x"\n}', headers={"content-type": kind}).json()
        assert "x-ndjson" not in refusal["message"]
        assert client.post("/feedback", content=next(events(1)), headers={"content-type": kind}).status_code == 202


def test_an_event_may_bring_the_vectors_of_an_item_the_catalogue_lacks(client):
    event = {**json.loads(next(events(1))), "query": "new"}
    event["features"] = {"new": {"shape": [0.0] * 9, "noise": [0.0] * 5}}
    assert client.post("/feedback", json=event).status_code == 202


def test_an_event_the_log_did_not_take_is_not_accepted(shop, client, monkeypatch):
    def fail(*_):
        raise SourceError("the disk is full")

    monkeypatch.setattr(shop.log, "send", fail)
    assert "the disk is full" in refused(client.post("/feedback", content=next(events(1))), 503, "source")
    monkeypatch.undo()
    assert client.post("/feedback", content=next(events(1))).status_code == 202


def test_a_node_without_a_log_says_that_it_takes_no_feedback(shop):
    with shop.serving(sink=None) as node, asking(node) as client:
        refusal = refused(client.post("/feedback", content=next(events(1))), 503, "source")
    assert "takes no feedback" in refusal


def test_posts_at_the_same_time_are_all_taken(shop, client):
    payloads = list(events(40))
    with ThreadPoolExecutor(8) as threads:
        responses = list(threads.map(lambda payload: client.post("/feedback", content=payload), payloads))
    assert [response.status_code for response in responses] == [202] * 40
    assert sorted(sent(shop)) == sorted(payloads)
