"""A Valkey whose replica takes over and lacks a rehome: models live on fewer partitions than workers knew."""

from __future__ import annotations

import pytest

from omdml import LOMDML
from omdml.workers.configuration.loading import load
from omdml.workers.wiring.kafka_topic import survey_topic
from tests.fault.chaos.servers import MovingValkey
from tests.support.processes import flowing, wait_for
from tests.support.servers.many_models import NAMES, Place, learn, learn_first_two_partitions
from tests.support.worlds import catalogue, triplets

UNREAD = "partitions_not_read"


@pytest.fixture
def pair():
    server = MovingValkey()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def place(tmp_path, kafka, pair, new_topic):
    """Ten events of each model are learned on the two partitions of a topic."""
    place = Place(tmp_path, kafka, pair.url, new_topic(partitions=2))
    place.send(0, 10)
    learn(place, 10)
    return place


def expected(folder):
    """What every model is once it has learned 20 events, each once, in order."""
    items, states = catalogue(folder / "same items"), {}
    for number, name in enumerate(NAMES):
        model = LOMDML(dims=dict(items.dims), rank=2)
        model.learn_many(triplets(20, seed=number), items.features)
        states[name] = model.to_bytes()
    return states


def test_a_rehome_that_the_replica_lacks_is_asked_for_again_and_nothing_is_lost(place, pair):
    place.grow(4)
    place.send(10, 15)
    learn_first_two_partitions(place)
    # Given that nothing reaches the replica: neither the rehome nor what workers learned and saved after it
    pair.stop_replicating()
    assert place.omdml("rehome").output == "models now live on 4 partitions, before on 2: start the workers again\n"
    worker = place.worker()
    wait_for(lambda: place.learned(15), "what waited in the new partitions", 60, worker)
    # When it takes over, I expect the worker to end, for its supervisor to start it again
    pair.take_over()
    assert worker.wait(60) == 1, worker.said
    assert "the record of where its models live changed" in worker.said
    place.send(15, 20)
    worker = place.worker()
    wait_for(lambda: UNREAD in worker.said, "the line that says what to do", 60, worker)
    assert worker.stop() == 0
    status = place.omdml("status")
    assert status.exit_code == 1
    assert "stop the senders and the workers, then run omdml topics rehome" in flowing(status.output)
    # Then the same command again, and every event is learned once.
    learn_first_two_partitions(place)
    assert place.omdml("rehome").exit_code == 0
    learn(place, 20)
    assert place.states() == expected(place.folder)


@pytest.mark.deep
@pytest.mark.parametrize("resent", ["before", "after"])
def test_letters_of_a_rehome_that_the_replica_lacks_are_learned_once(place, pair, resent):
    # Given events of four models that move, which wait in their old partitions, and become letters
    place.send(10, 20)
    place.grow(4)
    pair.stop_replicating()
    assert place.omdml("rehome", "--senders-go-on").exit_code == 0
    worker = place.worker()
    wait_for(lambda: len(letters(place)) == 40, "letters of what waited", 60, worker)
    if resent == "before":
        # A letter can be sent again once the worker has saved that it passed the event.
        read_everything(place, worker)
        resend(place)
        wait_for(lambda: place.learned(20), "what was sent again", 60, worker)
    # When a replica without the rehome takes over, these events are learned in the partitions that hold them
    pair.take_over()
    assert worker.wait(60) == 1, worker.said
    learn_first_two_partitions(place)
    assert place.learned(20)
    assert place.omdml("rehome").exit_code == 0
    if resent == "after":
        resend(place)
    # Then what was sent again is passed over on the new partitions.
    worker = place.worker()
    read_everything(place, worker)
    assert worker.stop() == 0
    assert place.states() == expected(place.folder)
    audited = flowing(place.omdml("--audit", group="doctor").output)
    assert "everything that is known adds up" in audited
    assert "user-0 10 0 0 10 0 0 0" in audited


def read_everything(place, worker):
    wait_for(
        lambda: all(line.lag == 0 for line in survey_topic(load(str(place.path), {}, {}))),
        "everything read",
        60,
        worker,
    )


def letters(place):
    return place.omdml("list", "--json", group="letters").output.splitlines()


def resend(place):
    assert place.omdml("resend", group="letters").output == "sent 40; 0 would be refused again\n"
