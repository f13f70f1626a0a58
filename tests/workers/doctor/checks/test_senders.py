"""Which partitioner the senders of a topic use, told from its newest events."""

from __future__ import annotations

import msgspec
import pytest

from omdml.feedback import Triplet, encode
from omdml.streams.partitioners import PARTITIONERS
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.resent_events import resent_header
from omdml.workers.doctor.checks.senders import advise, look_at_senders, mistyped_fields
from omdml.workers.doctor.findings import Level

NOW = 1_000_000.0
MODELS = [f"shop-{number}" for number in range(40)]


def event(model, number, key="", offset=0, headers=(), at=NOW - 60):
    """An event of a model on a partition."""
    value = encode(Triplet(model=model, query="a", relevant="b", irrelevant="c"))
    return Record(Partition("topic", number), offset, value, key.encode() or None, at, tuple(headers))


def keyed(partitioner, count=4, models=MODELS, **options):
    """Events as a client sends them that hashes the model's name."""
    return [event(model, PARTITIONERS[partitioner](model.encode(), count), model, **options) for model in models]


def findings(records, partitioner="murmur2", homes=4, partitions=4, learned=False):
    """The levels and texts of the findings."""
    advice = advise(look_at_senders(records, Placement.first(partitioner, homes), partitions), learned, NOW)
    return [(Level.OK, advice)] if isinstance(advice, str) else [tuple(remark) for remark in advice]


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_events_that_lie_at_their_homes_are_well(partitioner):
    ((level, text),) = findings(keyed(partitioner), partitioner)
    assert level is Level.OK
    assert f"40 events, of 40 models, all lie where {partitioner} puts their models" in text


@pytest.mark.parametrize(("ours", "theirs"), [("murmur2", "crc32"), ("crc32", "murmur2")])
def test_the_advice_about_another_partitioner_says_what_to_set(ours, theirs):
    strays = sum(PARTITIONERS[ours](model.encode(), 4) != PARTITIONERS[theirs](model.encode(), 4) for model in MODELS)
    ((level, text),) = findings(keyed(theirs), ours)
    assert level is Level.ERROR
    assert f"{strays} of the newest 40 events" in text
    assert f'Set log.partitioner = "{theirs}" (nothing was learned yet)' in text
    ((_, text),) = findings(keyed(theirs), ours, learned=True)
    assert f'stop the workers, set log.partitioner = "{theirs}" and run omdml topics rewind' in text
    assert {"crc32": "partitioner=consistent_random", "murmur2": "partitioner=murmur2_random"}[ours] in text


def test_senders_that_differ_are_not_advised_to_change_the_setting():
    ((level, text),) = findings(keyed("crc32") + keyed("murmur2"))
    assert level is Level.ERROR
    assert "the senders differ: have these senders choose by murmur2" in text
    assert "log.partitioner =" not in text


def test_fields_with_nearly_our_names_are_warned_of_and_others_are_not():
    def sent_with(**fields):
        first, *others = keyed("murmur2")
        value = first.value[:-1] + "".join(f',"{name}":"x"' for name in fields).encode() + b"}"
        records = [msgspec.structs.replace(first, value=value), *others]
        return mistyped_fields(look_at_senders(records, Placement.first("murmur2", 4), 4))

    assert sent_with() == sent_with(session_id=1, colour=2) == []
    ((level, text),) = sent_with(usr=1, colour=2)
    assert level is Level.WARNING
    assert "'usr' (1 event; did you mean 'user'?). Events are learned without these fields" in text
    assert "omdml forget does not find events whose user is in another field" in text
    assert "omdml forget" not in sent_with(featurs=1)[0].text


def test_events_without_a_key_bring_advice_about_keys_and_the_router():
    records = [event(model, number) for model in MODELS for number in range(4)]
    ((level, text),) = findings(records)
    assert level is Level.ERROR
    assert "160 of the newest 160 events, of 40 models, have no key" in text
    assert (
        "over all partitions: 120 of them lie on another partition than the one that their model is learned from"
        in text
    )
    assert "Have the sender set the model's name as the key" in text
    assert "omdml route --from TOPIC" in text


def test_events_by_another_key_are_shown_with_an_example():
    records = [event(model, number, f"user-{number}") for model in MODELS for number in range(4)]
    ((_, text),) = findings(records)
    assert "160 of the newest 160 events, of 40 models, have a key that is not their model's name" in text
    assert "'user-" in text
    assert "for model 'shop-" in text


def test_a_keyless_event_that_a_client_put_at_its_home_is_well():
    records = [event(model, PARTITIONERS["murmur2"](model.encode(), 4)) for model in MODELS]
    assert findings(records)[0][0] is Level.OK


def test_a_sender_with_a_partitioner_of_its_own_is_reported():
    homes = {name: {partitioner(name.encode(), 4) for partitioner in PARTITIONERS.values()} for name in MODELS}
    records = [event(name, min(set(range(4)) - numbers), name) for name, numbers in homes.items()]
    ((level, text),) = findings(records)
    assert level is Level.ERROR
    assert "neither murmur2 nor crc32" in text


def test_senders_that_know_of_added_partitions_bring_advice_to_rehome():
    ((level, text),) = findings(keyed("murmur2", count=8), homes=4, partitions=8)
    assert level is Level.ERROR
    assert "among 8 partitions, but models have their homes among 4" in text
    assert "omdml topics rehome" in text


def test_events_in_partitions_that_nobody_reads_yet_are_reported_as_waiting():
    ((level, text),) = findings(keyed("murmur2", count=8, at=NOW - 7200), homes=4, partitions=8)
    assert level is Level.ERROR
    assert "these events wait; none becomes a dead letter" in text


def test_events_by_a_number_of_partitions_that_does_not_fit_are_dead_letters():
    results = findings(keyed("murmur2", count=6), homes=4, partitions=6)
    assert results
    assert all("such events become dead letters, wrong_partition" in text for _, text in results)


def test_old_strays_are_a_warning_only():
    ((level, text),) = findings(keyed("crc32", at=NOW - 7200))
    assert level is Level.WARNING
    assert "2 h ago" in text
    assert "only this is left to do: omdml letters resend" in text


def test_strays_are_a_warning_once_enough_events_are_right_after_them():
    strays, at_home = keyed("crc32", at=NOW - 120), keyed("murmur2", at=NOW - 60)
    # Forty events at home are too few.
    ((level, text),) = findings(strays + at_home)
    assert level is Level.ERROR
    assert "stays until 200 newer events lie in partition" in text
    ((level, text),) = findings(strays + at_home + keyed("murmur2", at=NOW - 30))
    assert level is Level.WARNING
    assert "80 events with the right key lie at home since" in text


def test_keyless_events_that_came_home_by_chance_make_no_stray_harmless():
    strays = [event(model, number, at=NOW - 120) for model in MODELS for number in range(4)]
    by_chance = [event(model, PARTITIONERS["murmur2"](model.encode(), 4), at=NOW - 60) for model in MODELS * 2]
    assert findings(strays + by_chance)[0][0] is Level.ERROR


def test_several_causes_are_reported_one_by_one_the_most_frequent_first():
    keyless = [event(model, number) for model in MODELS for number in range(4)]
    causes = [text for _, text in findings(keyless + keyed("crc32"))]
    assert ["have no key" in text for text in causes] == [True, False]
    assert "lie where crc32 puts their model" in causes[1]


def test_what_was_sent_again_and_what_is_no_event_say_nothing_of_senders():
    resent = [event(model, 0, headers=[resent_header((Partition("topic", 1), 5), b"secret")]) for model in MODELS]
    broken = [Record(Partition("topic", 1), 9, b"{broken", None, NOW)]
    says_nothing = "the topic holds no events yet that show how senders choose partitions"
    assert findings(resent + broken) == [(Level.OK, says_nothing)]


def test_one_partition_suits_every_sender():
    ((level, text),) = findings([event(model, 0) for model in MODELS], homes=1, partitions=1)
    assert level is Level.OK
    assert "whatever the senders do" in text


def test_events_of_a_model_in_parts_may_lie_anywhere():
    records = [event("hot", number, "", offset=number) for number in range(4)]
    senders = look_at_senders(records, Placement.first("murmur2", 4), 4, {"hot"})
    assert senders.count == 0
    assert look_at_senders(records, Placement.first("murmur2", 4), 4).count == 4
