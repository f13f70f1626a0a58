"""The oracle itself: it must be able to fail, and it shares no code with what it judges."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.support import oracle, records
from tests.support.oracle import Finding, Oracle, Placement, Step
from tests.support.records import Event

MODEL = "shop"
FOUR = Placement("murmur2", [Step(4)])
HOME = FOUR.home(MODEL)
# The event at this offset is held out.
DRAWN = 4


def payload(model=MODEL):
    return json.dumps({"type": "triplet", "model": model, "query": "a", "relevant": "b", "irrelevant": "c"}).encode()


def log(count=10, partition=HOME, first=0, number=0):
    """Events of a model, numbered in their headers."""
    return [Event(partition, first + turn, payload(), {"number": str(number + turn).encode()}) for turn in range(count)]


def judge(events, **options):
    """An oracle of these events, on four partitions."""
    return Oracle(events, FOUR, lambda _, event: event.offset == DRAWN, **options)


def checkpoint(learned, held, after, home=HOME, compared=None, model=MODEL):
    """A checkpoint as safetensors have it: a length, a header in JSON."""
    progress = {"hold_out": {"count": held}, "mistakes": {"count": learned if compared is None else compared}}
    fields = {"model": model, "home": ["log", home], "next": after, "version": learned, "progress": progress}
    header = json.dumps({"__metadata__": {"omdml": json.dumps({"checkpoint": fields})}}).encode()
    return len(header).to_bytes(8, "little") + header


def letter(partition, offset, reason="wrong_partition"):
    return json.dumps({"reason": reason, "error": "", "partition": ["log", partition], "offset": offset}).encode()


def numbers(count):
    return [str(number).encode() for number in range(count)]


def test_a_sound_log_has_no_finding():
    judged = judge(log(10))
    assert judged.findings([checkpoint(9, 1, after=10)], [], numbers(10)) == []
    assert judged.learned(MODEL) == [event for event in log(10) if event.offset != DRAWN]


def test_a_doubled_event_is_found_and_both_places_are_named():
    judged = judge([*log(10), *log(1, first=10, number=4)])
    result = judged.findings([checkpoint(10, 1, after=11)], [], numbers(10))
    assert result == [Finding("doubled", 1, f"event b'4' has a fate at each of {HOME}/4, {HOME}/10")]


def test_an_acknowledged_event_that_is_not_in_the_log_is_found():
    result = judge(log(9)).findings([checkpoint(8, 1, after=9)], [], numbers(10))
    assert result == [Finding("lost", 1, "event b'9' was acknowledged, but has no fate in the log")]


def test_events_behind_a_checkpoint_are_lost_from_a_place_on():
    result = judge(log(10)).findings([checkpoint(6, 1, after=7)], [])
    assert result == [Finding("lost", 3, f"{MODEL}: not taken are its events from {HOME}/7 on")]


@pytest.mark.parametrize(("learned", "what"), [(8, "lost"), (10, "doubled")])
def test_a_count_that_is_off_by_one_is_found_with_the_places_it_is_about(learned, what):
    result = judge(log(10, first=3)).findings([checkpoint(learned, 1, after=13)], [])
    message = f"{learned} learned, expected 9, from {HOME}/3 to below {HOME}/13"
    assert result == [Finding(what, 1, f"{MODEL}: {message}")]


def test_a_version_that_is_not_what_was_compared_is_found():
    (result,) = judge(log(10)).findings([checkpoint(9, 1, after=10, compared=8)], [])
    assert (result.events, "8 compared, expected 9" in result.text) == (1, True)


def test_a_model_without_a_checkpoint_is_found():
    result = judge(log(10)).findings([], [])
    assert result == [Finding("lost", 10, f"{MODEL}: no checkpoint, but events from {HOME}/0 on")]


def test_a_letter_about_an_event_that_was_learned_is_found():
    result = judge(log(10)).findings([checkpoint(9, 1, after=10)], [letter(HOME, 5, "unknown_item")])
    assert result == [Finding("doubled", 1, f"{HOME}/5: letters unknown_item, expected none")]


def test_a_stray_must_have_a_letter_and_the_letter_must_say_so():
    away = (HOME + 1) % 4
    judged = judge([*log(10), *log(2, partition=away, number=10)])
    checkpoints, right = [checkpoint(9, 1, after=10)], letter(away, 0)
    assert judged.findings(checkpoints, [right, right, letter(away, 1)], numbers(12)) == []
    results = judged.findings(checkpoints, [right], numbers(12))
    assert results == [Finding("lost", 1, f"{away}/1: letters none, expected wrong_partition")]
    results = judged.findings(checkpoints, [right, letter(away, 1, "unknown_item")])
    assert results == [Finding("letter", 1, f"{away}/1: letters unknown_item, expected wrong_partition")]


def test_a_learned_stray_is_found():
    away = (HOME + 1) % 4
    judged = judge([*log(10), *log(1, partition=away)])
    results = judged.findings([checkpoint(10, 1, after=10)], [letter(away, 0)])
    assert [(entry.what, entry.events) for entry in results] == [("doubled", 1)]


def test_letters_that_contradict_each_other_or_are_about_nothing_are_found():
    marked = Event(HOME, 0, payload(), {"bad": b""})
    assert judge([marked]).findings([], [letter(HOME, 0, "unknown_item")]) == []
    judged = judge([Event(0, 0, b"broken")])
    assert judged.findings([], [letter(0, 0, "undecodable")]) == []
    results = judged.findings([], [letter(0, 0, "undecodable"), letter(0, 0, "unknown_item"), letter(1, 7)])
    assert [entry.text for entry in results] == [
        "0/0: letters undecodable, unknown_item, expected bad",
        "1/7: letters wrong_partition, expected none",
    ]


def test_what_was_sent_again_has_one_fate():
    away = (HOME + 1) % 4
    judged = judge([*log(1, partition=away), *log(1)])
    again = json.dumps({"resent": [["log", away], 0]}).encode()
    assert judged.findings([checkpoint(1, 0, after=1)], [letter(away, 0), again], numbers(1)) == []
    results = judged.findings([checkpoint(1, 0, after=1)], [letter(away, 0)], numbers(1))
    assert [entry.what for entry in results] == ["doubled"]


def test_a_model_goes_on_in_another_partition_after_a_step():
    eight = Placement("murmur2", [Step(4), Step(8, {0: 5, 1: 5, 2: 5, 3: 5})])
    name = next(name for name in map("user-{}".format, range(100)) if (eight.home(name, 0), eight.home(name)) == (1, 5))
    before = [Event(1, offset, payload(name)) for offset in range(7)]
    after = [Event(5, offset, payload(name)) for offset in range(3)]
    grown = Oracle([*before, *after], Placement("murmur2", [Step(4)]))
    assert [event.place for event in grown.unread] == [(5, 0), (5, 1), (5, 2)]
    judged = Oracle([*after, *before], eight)
    assert [event.place for event in judged.taken[name]] == [(1, n) for n in range(5)] + [(5, n) for n in range(3)]
    assert judged.letters == {(1, 5): "wrong_partition", (1, 6): "wrong_partition"}
    late, learned = [letter(1, 5), letter(1, 6)], checkpoint(8, 0, after=3, home=5, model=name)
    assert judged.findings([learned], late) == []
    results = judged.findings([checkpoint(5, 0, after=5, home=1, model=name)], late)
    assert [entry.what for entry in results] == ["home", "lost"]
    unmoved = Oracle(before, eight)
    assert unmoved.findings([checkpoint(5, 0, after=5, home=1, model=name)], late) == []
    assert [finding.what for finding in unmoved.findings([checkpoint(5, 0, after=0, home=2, model=name)], late)] == [
        "home"
    ]


def test_a_placement_is_read_as_the_store_keeps_it():
    placement = {
        "partitioner": "crc32",
        "steps": [{"count": 4, "since": {}}, {"count": 8, "since": {"3": 5}}],
        "format": 1,
    }
    assert Placement.read(json.dumps(placement).encode()) == Placement("crc32", [Step(4), Step(8, {3: 5})])


def test_with_the_secret_known_each_event_is_held_out_or_learned():
    held_out = oracle.drawn(b"s" * 32, 5)
    judged = Oracle(log(100), FOUR, held_out)
    learned = judged.learned(MODEL)
    assert 60 < len(learned) < 95
    assert not any(held_out(MODEL, event) for event in learned)
    assert judged.findings([checkpoint(len(learned), 100 - len(learned), after=100)], []) == []
    results = judged.findings([checkpoint(len(learned) - 1, 101 - len(learned), after=100)], [])
    assert [(entry.what, entry.events) for entry in results] == [("lost", 1), ("doubled", 1)]


def in_parts(merged_version=18):
    """The findings about a model in parts whose events lie on two partitions."""
    events = [*log(10, partition=0), *log(10, partition=3, number=10)]
    parts = [checkpoint(9, 1, after=10, home=number, model=f"{MODEL}::part-{number}") for number in (0, 3)]
    merged = [checkpoint(merged_version, 2, after=0)] if merged_version else []
    judged = judge(events, in_parts=[MODEL])
    return judged, judged.findings([*parts, *merged], [], numbers(20))


def test_events_of_a_model_in_parts_belong_to_the_part_where_they_lie():
    judged, findings = in_parts()
    assert judged.letters == {}
    assert {name: len(events) for name, events in judged.taken.items()} == {"shop::part-0": 10, "shop::part-3": 10}
    assert findings == []


@pytest.mark.parametrize("merged_version", [17, 19, None])
def test_a_whole_model_that_is_not_the_sum_of_its_parts_is_found(merged_version):
    _, findings = in_parts(merged_version)
    assert [entry.what for entry in findings] == ["merge"]


def test_events_that_a_part_lacks_are_lost():
    judged = judge(log(10, partition=1), in_parts=[MODEL])
    part = checkpoint(6, 1, after=7, home=1, model=f"{MODEL}::part-1")
    (lost,) = judged.findings([part, checkpoint(6, 1, after=0)], [])
    assert (lost.what, lost.events) == ("lost", 3)


def test_the_partitioners_are_those_of_kafka_and_librdkafka():
    signed = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert {key: oracle.murmur2(key) for key in signed} == {key: hashed & 0x7FFFFFFF for key, hashed in signed.items()}
    assert oracle.HASHES["crc32"](b"123456789") == 0xCBF43926


def test_segments_of_a_file_log_are_read_line_by_line(tmp_path):
    plain, injected = b'{"logged":1.000000,"key":"shop","model":"shop"}\n', b'{"model":"a\rb"}\n'
    wrapped = b'{"record":{"logged":1.0,"key":null,"headers":[["n","7"]],"value":{"base64":"gQ=="}}}\n'
    (tmp_path / "00000001.jsonl").write_bytes(plain + b"\n" + injected)
    (tmp_path / "00000002.jsonl").write_bytes(wrapped + b'{"torn')
    (tmp_path / "log.id").write_bytes(b"0" * 32)
    results = list(records.read_segments(tmp_path))
    first_file, second_file = 1 << 40, 2 << 40
    assert [event.place for event in results] == [(0, first_file), (0, first_file + len(plain) + 1), (0, second_file)]
    assert [event.model for event in results] == ["shop", None, None]
    assert (results[2].value, results[2].headers) == (b"\x81", {"n": b"7"})


def test_the_oracle_imports_nothing_of_the_product():
    for path in (Path(oracle.__file__), Path(records.__file__)):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        modules |= {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
        assert not {module.split(".")[0] for module in modules} & {"omdml", "streams", "workers", "deploy"}
        assert {module for module in modules if module.startswith("tests")} <= {"tests.support.records"}
