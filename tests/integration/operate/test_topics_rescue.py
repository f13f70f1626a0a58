"""``omdml topics status | rewind | rehome`` on real Kafka and Valkey, with a real worker: what they say and mend."""

from __future__ import annotations

import os
import re
import signal
import socket

import pytest
import redis
from click.testing import CliRunner

from omdml.feedback import Triplet, encode
from omdml.streams.partitioners import by_murmur2
from omdml.workers.cli import main
from omdml.workers.configuration.loading import load
from omdml.workers.doctor.checks.installation import examine
from omdml.workers.wiring.kafka_topic import look_at_topic, survey_topic
from tests.support import records
from tests.support.forks import ForkedProcess
from tests.support.oracle import STRAY, Oracle, Placement
from tests.support.processes import flowing, wait_for
from tests.support.servers.kafka_reader import cut, write
from tests.support.servers.many_models import EVENTS, NAMES, Place, learn, learn_first_two_partitions


@pytest.fixture
def place(tmp_path, kafka, valkey_server, new_topic):
    return Place(tmp_path, kafka, valkey_server.url, new_topic(partitions=2))


def test_an_emptied_store_stops_the_worker_and_a_rewind_learns_the_same_bytes(place, valkey_server):
    place.send(0, 10)
    worker = place.worker()
    wait_for(lambda: place.learned(10), "everything learned", 60, worker)
    assert worker.stop() == 0
    before = place.states()
    sound = place.omdml("status")
    assert sound.exit_code == 0, sound.output
    assert "what is wrong, what to do" in flowing(sound.output)
    assert sound.output.count("nothing") == 2

    valkey_server.flush()
    worker = place.worker()
    assert worker.wait(60) == 3
    assert "omdml topics rewind" in worker.said
    emptied = place.omdml("status")
    assert emptied.exit_code == 1
    assert "omdml topics rewind" in flowing(emptied.output)

    rewound = place.omdml("rewind", "--yes")
    assert rewound.output.startswith("0 models deleted; workers begin at the beginning\n")
    assert "does not know how many partitions the topic began with: models will live on all 2" in flowing(
        rewound.output
    )
    worker = place.worker()
    wait_for(lambda: place.learned(10), "everything learned again", 60, worker)
    assert worker.stop() == 0
    assert place.states() == before


def test_a_rewind_of_a_store_that_is_there_learns_the_same_bytes_again(place):
    place.send(0, 10)
    worker = place.worker()
    wait_for(lambda: place.learned(10), "everything learned", 60, worker)
    before, refused = place.states(), place.omdml("rewind", "--yes")
    assert (refused.exit_code, place.states()) == (2, before)
    who = f"omdml-{socket.gethostname()}-{worker.pid} at 127.0.0.1"
    assert f"has members ({who}): stop the workers first" in flowing(refused.output)
    assert worker.stop() == 0
    assert place.omdml("rewind", "--to", "9999", "--yes").exit_code == 2
    assert place.omdml("rewind", "--to", "beginning", "--yes").output.startswith("8 models deleted")
    assert place.store.models() == []
    worker = place.worker()
    wait_for(lambda: place.learned(10), "everything learned again", 60, worker)
    assert worker.stop() == 0
    assert place.states() == before


def test_a_rewind_under_another_group_notices_the_workers_that_read(place):
    place.send(0, 10)
    worker = place.worker()
    wait_for(lambda: place.learned(10), "everything learned", 60, worker)
    before, written = place.states(), place.path.read_text()
    place.path.write_text(written.replace(f'group = "{place.topic}"', 'group = "mistyped"'))
    refused = place.omdml("rewind", "--yes")
    assert (refused.exit_code, place.states()) == (2, before)
    assert f"says that group '{place.topic}' reads this log" in flowing(refused.output)
    status = place.omdml("status")
    assert (status.exit_code, f"set log.group to '{place.topic}'" in flowing(status.output)) == (1, True)
    doctor = {finding for finding in examine(load(str(place.path), {}, {})) if finding.check == "partitions"}
    assert [finding for finding in doctor if f"set log.group to '{place.topic}'" in finding.text]
    # If a worker reads under the new name, I expect the command to look for workers of this name.
    assert worker.stop() == 0
    learn_first_two_partitions(place)
    assert place.omdml("rewind", "--yes").output.startswith("8 models deleted")


def test_if_workers_of_two_groups_start_one_group_is_to_be_stopped(place):
    place.send(0, 10)
    worker = place.worker()
    wait_for(lambda: place.learned(10), "everything learned", 60, worker)
    # A worker whose group was mistyped records this when it starts.
    (position, *_) = place.store.positions(place.store.models()).values()
    place.store.note_group(position.home.topic_id, "mistyped")
    status = place.omdml("status")
    advice = "stop those of the wrong group. Then restart one of the others"
    assert (status.exit_code, advice in flowing(status.output)) == (1, True)
    assert "set log.group" not in status.output
    doctor = [finding for finding in examine(load(str(place.path), {}, {})) if finding.check == "partitions"]
    assert [finding for finding in doctor if advice in finding.text]
    # I expect the worker that starts next to record its group.
    assert worker.stop() == 0
    worker = place.worker()
    wait_for(lambda: place.store.group(position.home.topic_id) == place.topic, "the group", 60, worker)
    assert worker.stop() == 0


def test_a_rewind_beside_a_worker_that_starts_meanwhile_says_so(place):
    place.send(0, 10)
    learn(place, 10)
    before = place.states()
    # Given a rewind that is paused amid its deletions, and a worker that starts then and reads on
    rewinding = ForkedProcess(
        place.folder,
        *("paused:model deleted", "1", "topics", "rewind", "--yes", "--config", str(place.path)),
        name="rewind", module="tests.fault.kills.killed_at",
    )  # fmt: skip
    wait_for(lambda: rewinding.paused, "the rewind to pause", 60, rewinding)
    worker = place.worker()
    log = load(str(place.path), {}, {}).log
    marks = {extent.partition: extent.end for extent in look_at_topic(log)}
    wait_for(lambda: place.store.marks(list(marks)) == marks, "the worker to read on", 60, worker)
    rewinding.resume()
    # I expect it to say what to do, and that to help.
    assert rewinding.wait(60) == 1
    who = f"omdml-{socket.gethostname()}-{worker.pid} at 127.0.0.1"
    assert f"a worker started in the meantime ({who})" in flowing(rewinding.said)
    assert worker.stop() == 0
    assert place.omdml("rewind", "--yes").exit_code == 0
    learn(place, 10)
    assert place.states() == before


def test_a_rewind_does_not_pass_over_events_that_nobody_has_learned(place):
    place.send(0, 10)
    learn(place, 10)
    place.send(10, 20)
    refused = place.omdml("rewind", "--to", "50", "--yes")
    assert refused.exit_code == 2
    assert "can be learned again from an offset between 0 and" in flowing(refused.output)
    learn(place, 20)


def test_a_log_that_was_cut_stops_every_worker_until_one_accepts_the_gap(place):
    # Given models that have learned what a cut took away, from a broker that comes back without it
    for first in (0, 5):
        place.send(first, first + 5)
    worker = place.worker()
    log = load(str(place.path), {}, {}).log
    wait_for(
        lambda: all(entry.committed == entry.end for entry in look_at_topic(log)), "all to be committed", 60, worker
    )
    assert place.learned(10)
    first_kept = 5 * sum(by_murmur2(name.encode(), 2) == 0 for name in NAMES)
    cut(place.kafka, place.topic, first_kept)
    assert worker.wait(60) == 3
    # When the log is longer than ever by the time somebody looks, I expect the next worker to stop there too.
    place.send(10, 20)
    worker = place.worker()
    assert worker.wait(60) == 3
    assert f"partition 0 was cut at offset {first_kept}" in worker.said
    # If one accepts it, I expect what was written on to be learned, and what was cut to stay so.
    worker = place.worker("--accept-gap")
    wait_for(lambda: place.learned(20), "what was written on to be learned", 60, worker)
    assert worker.stop() == 0
    assert place.omdml("status").exit_code == 0


def test_status_and_doctor_tell_who_learns_a_partition_or_that_nobody_does(place):
    place.send(0, 10)

    def status_and_finding():
        partitions = {entry.check: entry for entry in examine(load(str(place.path), {}, {}))}["partitions"]
        status = place.omdml("status")
        assert status.exit_code == (not partitions.well), status.output
        return flowing(status.output), partitions.text

    status, text = status_and_finding()
    assert "no worker is running" in status
    assert "so nobody learns these events: start one; 80 events wait there" in text
    worker = place.worker()
    wait_for(lambda: place.learned(10), "everything learned", 60, worker)
    for output in status_and_finding():
        assert "omdml-" in output
    assert f"event=worker_started metrics= topic={place.topic} group={place.topic}" in worker.said
    assert worker.stop() == 0


def learn_and_grow(place):
    """Have events learned before and after two partitions become four, and models live on all four."""
    place.send(0, 10)
    learn(place, 10)
    place.grow(4)
    place.send(10, 20)
    learn_first_two_partitions(place)
    assert place.omdml("rehome").exit_code == 0
    learn(place, 20)


def test_a_rewind_of_a_topic_that_has_grown_learns_the_old_partitions_first(place):
    learn_and_grow(place)
    before = place.states()
    text = " ".join(place.omdml("rewind", "--yes").output.split())
    assert "8 models deleted" in text
    assert "models live on the first 2 of 4 partitions again" in text
    learn_first_two_partitions(place)
    assert place.omdml("rehome").exit_code == 0
    learn(place, 20)
    assert place.states() == before


def test_a_rewind_of_an_emptied_store_must_be_told_how_the_topic_began(place, valkey_server):
    learn_and_grow(place)
    valkey_server.flush()

    assert "with the number that it began with: omdml topics rewind --partitions N" in flowing(
        place.omdml("rewind", "--yes").output
    )
    text = flowing(place.omdml("rewind", "--partitions", "2", "--yes").output)
    assert "does not know" not in text
    assert "models live on the first 2 of 4 partitions again" in text
    learn_first_two_partitions(place)
    assert place.omdml("rehome").exit_code == 0
    learn(place, 20)


def test_added_partitions_wait_for_a_rehome_and_no_event_is_lost_or_doubled(place):
    place.send(0, 10)
    learn(place, 10)
    place.grow(6)
    place.send(10, 20)

    worker = place.worker()
    wait_for(lambda: "partitions_not_read" in worker.said, "the line that says what to do", 60, worker)
    result = place.omdml("status")
    assert result.exit_code == 1
    assert "was added later and nobody reads it" in " ".join(result.output.split())
    refused = place.omdml("rehome")
    assert refused.exit_code != 0
    assert "stop the workers first" in refused.output
    assert worker.stop() == 0
    learn_first_two_partitions(place)
    assert place.omdml("rehome").output == "models now live on 6 partitions, before on 2: start the workers again\n"
    learn(place, 20)
    status = place.omdml("status")
    assert "no worker is running" not in status.output
    assert place.omdml("rehome").output == "models live on all 6 partitions already\n"


def test_a_rehome_says_what_is_not_learned_yet_and_loses_no_new_model(place):
    # Given a worker that ran before, and models whose first events came while none did, before and after the growth
    worker = place.worker()
    wait_for(lambda: "partition_assigned" in worker.said, "the worker to look at the topic", 60, worker)
    assert worker.stop() == 0
    place.send(0, 10)
    place.grow(4)
    place.send(10, 20)
    # When an operator looks, and calls rehome before a worker has learned anything
    early = place.omdml("rehome")
    assert early.exit_code != 0
    assert "events are not learned and saved yet" in " ".join(early.output.split())
    # Then workers learn what lies in the old partitions, and after another rehome all of it, as sent.
    learn_first_two_partitions(place)
    assert place.omdml("rehome").exit_code == 0
    learn(place, 20)


def test_a_number_of_partitions_that_is_no_multiple_is_reported_before_a_rehome(place):
    place.send(0, 10)
    learn(place, 10)
    place.grow(3)
    text = flowing(place.omdml("status").output)
    assert "3 is not a multiple of 2" in text
    refused = place.omdml("rehome")
    assert "omdml topics grow --partitions 4" in flowing(refused.output)


def test_keyless_events_become_letters_and_are_learned_once_they_are_sent_again(place):
    # Given half of each model's events from a sender without keys
    place.send(0, 10)
    for partition in (0, 1):
        first = 10 + 5 * partition
        values = [event for name in NAMES for event in EVENTS[name][first : first + 5]]
        write(place.kafka, place.topic, values, partition)
    learn(place, 15)
    # When they are sent again, twice, I expect each to be learned once.
    for sent in (40, 0):
        output = place.omdml("resend", group="letters").output
        assert output.startswith(f"sent {sent}; 0 would"), output
    learn(place, 20)


RUBBISH = (
    b"",
    b"{nonsense",
    b"\xff\xfe",
    b'{"type":"click","model":"user-1"}',
    encode(Triplet(model="user-2", query="i1", relevant="nobody", irrelevant="i3")),
    encode(Triplet(model="nobody", query="i1", relevant="i2", irrelevant="i3")),
)


def test_audit_and_oracle_agree_after_a_rehome_beside_senders_and_rubbish(place, valkey_server):
    # Given rubbish before a rehome, behind what was learned then, and after it; and events of models that move
    def litter(partitions):
        for partition in range(partitions):
            write(place.kafka, place.topic, RUBBISH, partition, headers=[("bad", b"")])

    litter(2)
    place.send(0, 10)
    learn(place, 10)
    litter(2)
    place.send(10, 12)
    place.grow(4)
    assert place.omdml("rehome", "--senders-go-on").exit_code == 0
    place.send(12, 20)
    litter(4)
    # When two workers learn what is left, and stop together
    workers, configuration = [place.worker(), place.worker()], load(str(place.path), {}, {})
    wait_for(lambda: all(line.lag == 0 for line in survey_topic(configuration)), "everything learned", 60, workers[0])
    for worker in workers:
        os.kill(worker.pid, signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [0, 0]
    # Then each event has one fate, and the group has committed what is learned.
    assert [line.extent.committed for line in survey_topic(configuration)] == [
        line.extent.end for line in survey_topic(configuration)
    ]
    with redis.Redis.from_url(valkey_server.url) as client:
        placement = Placement.read(records.placement_in_redis(client, "omdml"))
        checkpoints = records.checkpoints_in_redis(client, "omdml")
    log = records.read_topic(place.kafka.servers, place.topic)
    dead = [event.value for event in records.read_topic(place.kafka.servers, f"{place.topic}.letters")]
    oracle = Oracle(log, placement)
    assert oracle.findings(checkpoints, dead) == []
    assert len(placement.steps) == 2
    assert set(oracle.letters.values()) == {"bad", STRAY}
    audited = CliRunner().invoke(main, ["doctor", "--audit", "--config", str(place.path)])
    assert re.search("everything( that is known)? adds up", flowing(audited.output))
